"""The task of retrieval: train a model with batches of classes, and evaluate it by the protocol of its data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch import Tensor, nn

from ..._version import __version__
from ...batches.distributed import on_first
from ...batches.memory import memory_buffers
from ...batches.sampler_settings import as_settings, named_as_settings
from ...common.checks import number
from ...common.defaults import FEWEST_STEPS, FEWEST_STEPS_FINE_TUNED, LOSSES, MOST_STEPS, PASSES_FINE_TUNED, epochs_for
from ...common.files import write_text
from ...datasets.rows import Listed, Rows
from ...datasets.transforms import Vectors
from ...evaluation import Report
from ...evaluation.measures import MAIN
from ...losses.called import CalledLoss
from ...models import EmbeddingHead, EmbeddingModel, extract_features, head_only, save_weights
from ...models.record import read_record
from ...models.state_dicts import read_plain, write_plain
from ...tables import aligned
from ...workbench.config import (
    ConfigError,
    default_loss,
    differing,
    fine_tuned,
    make,
    packages,
    plain,
    rate,
    section,
    trained_before,
)
from ...workbench.report import write_report
from ...workbench.runs.embeddings import save_embeddings
from ...workbench.runs.folder import Run
from ...workbench.runs.history import CHOSEN_BY
from ...workbench.runs.warned import below_before, other_counts
from ...workbench.training import runner
from ...workbench.training.averaging import Averaging
from ...workbench.training.callbacks import Forecast
from ...workbench.training.data import TrainingData
from ...workbench.training.early import check_retrieval
from ...workbench.training.inference import in_order
from ...workbench.training.module import RetrievalModule
from .building import (
    Given,
    build,
    by_levels,
    check_targets,
    load_table,
    relabelled,
    targets_of,
    to_choose_on,
    train_only,
)
from .evaluating import DISTRACTED, evaluate_model
from .page import read as read_run

PAIRS = 5e9  # query-item pairs: comparing more takes a minute or longer on one core


@dataclass(frozen=True)
class EvaluatedEmbeddings:
    """A report, and the embeddings that were evaluated."""

    report: Report
    embeddings: Tensor


class RetrievalTask:
    """See `runner.Task`.

    Args:
        config: settings of the run; `derived` is filled in.
        quiet: show no progress bars.
        say: function that prints a text: rows and classes by split, then batches, loss and learning rate.
        given: objects in place of settings.
    """

    settled: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, config: DictConfig, quiet: bool, say: runner.Say = runner.silent, given: Given | None = None
    ) -> None:
        self.config, self.quiet, self.say = config, quiet, say
        self.bars = bool(config.trainer.enable_progress_bar) and not quiet
        check_retrieval(config)  # before any file is read
        self.table = load_table(config, None if given is None else given.table, say)
        self.off_counts = self.table.off_counts
        self.test = self.table.select(config.evaluation.split)
        self.held_out = to_choose_on(config, self.table)
        self.run: Run | None = None
        self.best = -1.0  # best R@1 so far
        self.train_table = self.table.select("train")
        # classes numbered 0 .. C - 1 over the training set, as classifiers need them
        self.labels = torch.unique(self.train_table.label, return_inverse=True)[1]
        self.model, loss = build(config, self.table, given)
        self.trains_only = train_only(self.model, plain(config.train).get("only"))
        backbone = self.model.backbone if isinstance(self.model, EmbeddingModel) else self.model
        with section("train"):
            share = number(config.train.average, "average is a share of the trained weights", low=0, high=1)
        self.averaging = Averaging(backbone, share)
        self.transform = make(config.data.eval_transform, slot="transform", trust=packages(config.get("trust")))
        self.data, self.learner = self._to_train()
        targets = targets_of(config, self.train_table)
        if config.evaluation.levels:
            by_levels(self.test, "evaluation.levels")
        if targets is not None:
            check_targets(loss, targets)
        optimizer = {**plain(config.optimizer), "extended": plain(config.extended)}
        sub_batch = config.train.sub_batch
        with named_as_settings():
            even, batches = self.data.sampler.even, len(self.data.sampler)
        given_trainer = plain(config.trainer)
        if config.trainer.max_epochs is None:
            steps = runner.steps_of(config.trainer, batches)
            passes, fewest = config.data.epochs, FEWEST_STEPS
            if fine_tuned(config):
                passes, fewest = PASSES_FINE_TUNED, FEWEST_STEPS_FINE_TUNED
            config.trainer.max_epochs = epochs_for(steps, passes, fewest, MOST_STEPS)
        self.module = RetrievalModule(self.learner, loss, optimizer, sub_batch, even, targets)
        say(self._chosen())
        say(runner.budget(given_trainer, batches, config.trainer.max_epochs))
        # needed to build the model from a state, see `unfinished`
        if self.learner is self.model and isinstance(self.model, EmbeddingModel):
            self.module.kept["model"] = self.model.config
            self.module.kept["pixels"] = [list(self.model.pixel_mean), list(self.model.pixel_std)]
        self.memories: Sequence[str] = memory_buffers(self.module)

    def _to_train(self) -> tuple[TrainingData, nn.Module]:
        """The batches, and the module to train: the model, or with frozen=true a new head on its features."""
        config, table = self.config, relabelled(self.train_table, self.labels)
        if not config.frozen:
            transform = make(config.data.train_transform, slot="transform", trust=packages(config.get("trust")))
            workers = config.data.workers
            return TrainingData(table, self.labels, transform, config.sampler, config.seed, workers), self.model
        if config.init is None and not trained_before(config):
            raise ConfigError(
                "frozen=true trains a head on the features of a trained network. Name this network with init=RUN, or "
                "with model=timm and either model.pretrained=true or model.weights=FILE"
            )
        if config.model.head == "none":
            raise ConfigError("frozen=true trains a head, but model.head=none has no head; give model.head=linear")
        if config.evaluation.every:
            raise ConfigError("evaluation.every needs a whole model, but frozen=true trains only a head")
        assert isinstance(self.model, EmbeddingModel)  # `fit` refuses frozen=true
        head = head_only(self.model.feature_size, config.model.embedding_size, config.model.head or "linear")
        head.start_as_projection()
        # the rows are replaced by their features in `begin`
        return TrainingData(table, self.labels, Vectors(), config.sampler, config.seed), head

    def _chosen(self) -> str:
        """A line each for batches, loss and learning rate, with the reason for each value."""
        config, sampler = self.config, self.data.sampler
        each = "all" if sampler.samples_per_class == "all" else sampler.samples_per_class
        lines = [f"batches of {sampler.classes_per_batch} classes x {each} {self.table.takes}"]
        lines += [as_settings(note) for note in sampler.notes]
        batches, warmup = (
            len(sampler) * config.trainer.max_epochs,
            config.memory.get("warmup", 0) if config.memory else 0,
        )
        if config.memory and warmup + 1 >= batches > 0:  # used from the batch after the first that is stored
            lines.append(
                f"the memory is never used: it is filled after memory.warmup={warmup} batches, and the training has "
                f"{batches}. Lower memory.warmup"
            )
        takes, lr, by_default = self.table.takes, config.optimizer.lr, rate(config)
        kind = takes if takes in LOSSES else "images" if self.table.captions is None else "texts"
        for_what = f" for {kind}" if takes in LOSSES or kind == "texts" else ""  # a module may take any inputs
        by_kind = f", the default{for_what}; loss=NAME chooses another"
        own = " ".join(f"{name}={value}" for name, value in differing(plain(config.loss)).items())
        by_kind = by_kind if plain(config.loss) == default_loss(kind) else ""
        lines.append(f"loss {_loss_name(config)}{f' with {own}' if own else ''}{by_kind}")
        if isinstance(self.model, EmbeddingModel) and self.model.origin:
            lines.append(f"weights {self.model.origin}")
        if self.trains_only:
            lines.append(self.trains_only)
        if config.train.average != 1:
            share = f"{config.train.average:.0%} trained weights and {1 - config.train.average:.0%} pretrained ones"
            lines.append(f"the model that is kept is the average of {share} (train.average)")
        why = f"for {by_default.of}, with {config.optimizer.name}"
        why = why if lr == by_default.lr else f"as given; the default is {by_default.lr:g} {why}"
        others = [f"; {group['lr']:g} for the {group['name']}" for group in self.module.learned() if group["lr"] != lr]
        lines.append(f"optimizer.lr {lr:g}, {why}{''.join(others)}")
        return "\n".join(lines)

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the whole table."""
        return self.table.fingerprint()

    def callbacks(self) -> list[Callback]:
        """A callback for the forecast of the training time."""
        return [] if self.quiet else [Forecast(quicker(self.config))]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model. With frozen=true also compute the features."""
        self.run = run
        if not fresh and on_first(run.best.exists):
            self.best = on_first(lambda: float(read_record(run.best)["config"]["value"]))
        if (fresh or not on_first(run.before.exists)) and self._looks_before():
            _, evaluated = self._evaluated(trainer, self._untouched())
            on_first(lambda: write_text(run.before, evaluated.report.to_json()))
        if self.config.frozen:
            features = on_first(lambda: self._features(run.features, fresh))
            self.data.dataset = Listed(features, self.labels)

    def _untouched(self) -> nn.Module:
        """The model before training; a pretrained backbone without its new head, which has random weights."""
        model = self.model
        if not isinstance(model, EmbeddingModel) or self.config.init is not None or not trained_before(self.config):
            return model
        return model.with_head(EmbeddingHead(model.feature_size, None))

    def _looks_before(self) -> bool:
        """Whether the untrained model is evaluated. On large data this may take as long as the training.

        It is never evaluated on a sample of the queries, because the result could not be compared with the final one.
        """
        wanted, rows = self.config.evaluation.before, len(self.test)
        if self.config.lean or wanted != "auto":
            return bool(wanted) and not self.config.lean
        if rows**2 > PAIRS:
            self.say(
                f"the untrained model is not evaluated, because this would compare {rows:,} x {rows:,} "
                f"{self.test.takes}; to evaluate it, add evaluation.before=true"
            )
        return rows**2 <= PAIRS

    def _features(self, cache: Path, anew: bool) -> Tensor:
        """Features of the training rows. They are computed once and saved in the run's folder."""
        if cache.exists() and not anew:
            features: Tensor = read_plain(cache)
            return features
        table, size, workers = self.train_table, self.config.evaluation.batch_size, self.config.data.workers
        batches = in_order(table.dataset(), table.batches(self.transform), size, workers)
        assert isinstance(self.model, EmbeddingModel)
        features, _, _ = extract_features(self.model, batches, progress=self.bars)
        write_plain(cache, features)
        return features

    def _evaluated(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        config = self.config

        def evaluated(table: Rows, **changes: Any) -> tuple[Report, Tensor]:
            return evaluate_model(
                model,
                table,
                self.transform,
                {**plain(config.evaluation), **changes},
                workers=config.data.workers,
                seed=config.seed,
                progress=self.bars,
                device=trainer.strategy.root_device,
            )

        report, embeddings = evaluated(self.test)
        if self.held_out is not None:  # only R@1 is needed to choose the best evaluation
            chosen, _ = evaluated(self.held_out, ks=[1], bootstrap=0, clusters="none", levels=False)
            report = replace(report, values={**report.values, CHOSEN_BY["val"]: chosen.values["R@1"]})
        return report.values, EvaluatedEmbeddings(report, embeddings)

    def _keep_best(self, trainer: L.Trainer, values: Mapping[str, float]) -> None:
        """Write the weights if this evaluation is better than all earlier ones."""
        where = self.config.evaluation.keep_best
        if where is None or self.run is None or values[CHOSEN_BY[where]] <= self.best:
            return
        self.best = values[CHOSEN_BY[where]]
        if trainer.is_global_zero:
            save_weights(self.run.best, self.model, {"steps": trainer.global_step, "value": self.best})

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        """Evaluate by the protocol of the data."""
        with self.averaging.applied():
            values, evaluated = self._evaluated(trainer, model)
            if trainer.training:
                self._keep_best(trainer, values)
        return values, evaluated

    def trained(self) -> nn.Module:
        """The whole model, also if only its head was trained."""
        if not self.config.frozen:
            return self.model
        assert isinstance(self.model, EmbeddingModel) and isinstance(self.learner, EmbeddingHead)
        return self.model.with_head(self.learner)

    def write(self, run: Run, result: EvaluatedEmbeddings, facts: dict[str, Any]) -> str:
        """Write weights, embeddings, facts and page, and return the report. A lean run keeps only the numbers."""
        if self.config.lean:
            write_text(run.facts, json.dumps(facts, indent=1))
            run.state.unlink(missing_ok=True)
            return result.report.to_json()
        with self.averaging.applied():
            data = plain(runner.lasting(self.config).data)
            save_weights(run.weights, self.trained(), {"data": data, "version": __version__})
        save_embeddings(run.embeddings, result.embeddings, self.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        write_report(
            run.page, [read_run(run, after=result.report, table=self.test, trust=packages(self.config.get("trust")))]
        )
        return result.report.to_json()


def quicker(config: DictConfig) -> list[str]:
    """Settings that would make a run shorter and that it does not have yet."""
    hints = []
    if config.data.get("size", 0) > 64:
        hints += ["recipe=quick (1000 steps at 64 pixels)", f"data.size=64 instead of {config.data.size}"]
    if (config.init is not None or trained_before(config)) and not config.frozen:
        hints.append("frozen=true (computes the features once, then trains only a new head)")
    epochs = config.data.epochs if config.trainer.max_epochs is None else config.trainer.max_epochs
    if epochs > 5:
        hints.append(f"trainer.max_epochs=5 instead of {epochs}")
    return hints


def _name(config: DictConfig) -> str:
    """Name of a run: data and loss."""
    return f"{config.data.name}-{_loss_name(config)}"


def _loss_name(config: DictConfig) -> str:
    parts = config.loss.get("losses")
    name: str = config.loss._target_.rsplit(".", 1)[-1]
    if name == CalledLoss.__name__:  # its name without arguments: of SmoothAPLoss(tau=0.01), module.my_loss, <lambda>
        name = config.loss.name.partition("(")[0].rpartition(".")[2].strip("<>")
    return "+".join(parts) if isinstance(parts, DictConfig) else name


def check_data(config: DictConfig) -> None:
    """Raise if the data cannot be read or divided as the settings say."""
    load_table(config)


TASK: runner.TaskType[EvaluatedEmbeddings] = runner.TaskType("retrieval", _name, RetrievalTask)


def train(
    config: DictConfig,
    *,
    changes: Sequence[str] = (),
    quiet: bool = False,
    started: Callable[[Path], object] | None = None,
) -> Run:
    """Train a retrieval model, evaluate it before and after, and write the run's folder; see `runner.train`.

    Args:
        config: settings by `config.compose`.
        changes: settings to change in a resumed run.
        quiet: show no progress bars.
        started: called with the folder as soon as the run can be resumed.
    """
    return runner.train(TASK, config, changes=changes, quiet=quiet, started=started)


def summary(run: Run) -> str:
    """Metrics before and after training in per cent, and the paths of the results."""
    before, after = run.read_before(), Report.from_json(run.after)
    rows = [["", "before", "after", "95 % interval"]]
    hard = [name for name in after.values if name.startswith(DISTRACTED)]
    for name in (n for n in (*MAIN, *hard) if n in after.values):
        around = after.intervals.get(name)
        interval = f"{100 * around[0]:.1f} - {100 * around[1]:.1f}" if around else ""
        known = before is not None and name in before.values
        untrained = f"{100 * before.values[name]:.1f}" if before is not None and known else "-"
        rows.append([name, untrained, f"{100 * after.values[name]:.1f}", interval])
    page = [f"report: {run.page}"] if run.page.exists() else []
    wrong = [f"! {warned}" for warned in (*other_counts(run), *below_before(run))]
    return "\n".join([aligned(rows), *after.notes, "", f"run:    {run.folder}", *page, *wrong])
