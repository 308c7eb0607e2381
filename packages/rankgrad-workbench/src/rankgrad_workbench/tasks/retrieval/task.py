"""The task of retrieval: train a model with batches of classes, and evaluate it by the protocol of its data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from rankgrad._version import __version__
from rankgrad.batches.distributed import on_first
from rankgrad.batches.memory import memory_buffers
from rankgrad.batches.sampler_settings import as_settings, named_as_settings
from rankgrad.common.text import aligned
from rankgrad.evaluation import Report
from rankgrad.evaluation.measures import MAIN

from ...datasets.rows import Listed, Rows
from ...datasets.transforms import Collated
from ...files import defaults, write_text
from ...models import EmbeddingHead, EmbeddingModel, extract_features, save_weights
from ...models.record import read_record
from ...models.state_dicts import read_plain, write_plain
from ...report.content import loss_name, loss_told
from ...report.writing import write_report
from ...runs.embeddings import save_embeddings
from ...runs.folder import REMARKS, Run
from ...runs.history import CHOSEN_BY
from ...runs.run_warnings import at_size, below_before, other_counts, remarks_of
from ...settings import ConfigError, default_loss, make, plain, replaced
from ...training import runner
from ...training.averaging import Averaging
from ...training.data import TrainingData
from ...training.inference import in_order
from ...training.module import RetrievalModule
from . import building
from .building import Given, RetrievalRows
from .evaluating import evaluate_model
from .page import read as read_run
from .settings import BEST, RetrievalSettings, settings_of

#: That optimizer.average=best tries; 0 is the untouched network.
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
FEW: dict[str, Any] = {"ks": [1], "bootstrap": 0, "clusters": "none", "levels": False, "extra": ()}  # to choose
PAIRS = 5e9  # query-item pairs: comparing more takes a minute or longer on one core


@dataclass(frozen=True)
class EvaluatedEmbeddings:
    """A report, and the embeddings that were evaluated."""

    report: Report
    embeddings: Tensor


@dataclass(eq=False)
class RetrievalTask:
    """See `training.runner.Task`. `build` makes one from the settings of a run.

    Attributes:
        settings: of the run, with what follows from the data.
        settled: what follows from the data.
        rows: of the run.
        model: the whole model.
        module: what is trained: the model, or a new head, and the loss.
        data: the batches.
        averaging: of the trained weights with those before.
        transform: for evaluation.
        chooses_share: whether the share of the trained weights is chosen on the held-out classes, by mAP@R.
        quiet: show no progress bars.
        say: function that prints a text.
        best: best R@1 so far.
        run: the folder, as soon as the training begins.
    """

    settings: RetrievalSettings
    settled: Mapping[str, Any]
    rows: RetrievalRows
    model: nn.Module
    module: RetrievalModule
    data: TrainingData
    averaging: Averaging
    transform: Any
    chooses_share: bool = False
    quiet: bool = False
    say: runner.Say = runner.silent
    best: float = field(default=-1.0, init=False)
    run: Run | None = field(default=None, init=False)

    @property
    def off_counts(self) -> str:
        """Whether the data has other counts than published."""
        return self.rows.table.off_counts

    @property
    def memories(self) -> Sequence[str]:
        """The buffers of memories."""
        return memory_buffers(self.module)

    @property
    def bars(self) -> bool:
        """Whether progress bars are shown."""
        return bool(self.settings.trainer["enable_progress_bar"]) and not self.quiet

    def chosen(self, trains_only: str = "") -> str:
        """A line each for batches, loss and learning rate, with the reason for each value."""
        settings, sampler, table = self.settings, self.data.sampler, self.rows.table
        lines = [f"batches of {sampler.classes_per_batch} classes x {sampler.samples_per_class} {table.takes}"]
        lines += map(as_settings, sampler.notes)
        # a module may take any inputs
        kind = table.takes if table.takes in defaults.LOSSES else "images" if table.captions is None else "texts"
        for_what = f" for {kind}" if kind in (table.takes, "texts") else ""
        by_kind = f", the default{for_what}; loss=NAME chooses another" if settings.loss == default_loss(kind) else ""
        lines.append(f"loss {loss_told(settings.loss)}{by_kind}")
        if isinstance(self.model, EmbeddingModel) and self.model.origin:
            lines.append(f"weights {self.model.origin}")
        if trains_only:
            lines.append(trains_only)
        share, kept = self.averaging.share, "the model that is kept is an average of trained and pretrained weights"
        if self.chooses_share and self.rows.held_out is not None:
            classes = len(torch.unique(self.rows.held_out.label))
            lines.append(f"{kept}, with the share that is best on {classes} held-out classes (optimizer.average)")
        elif share != 1:
            lines.append(f"{kept}: {share:.0%} and {1 - share:.0%} (optimizer.average)")
        lr, default = settings.optimizer["lr"], settings.usual_rate
        why = f"for {default.of}, with {settings.optimizer['name']}"
        why = why if lr == default.lr else f"as given; the default is {default.lr:g} {why}"
        others = [f"; {group['lr']:g} for the {group['name']}" for group in self.module.learned() if group["lr"] != lr]
        lines.append(f"optimizer.lr {lr:g}, {why}{''.join(others)}")
        return "\n".join(lines)

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the whole table."""
        return self.rows.table.fingerprint()

    def callbacks(self) -> list[Callback]:
        """None."""
        return []

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model. With frozen=true also compute the features."""
        self.run = run
        if not fresh and on_first(run.best.exists):
            self.best = on_first(lambda: float(read_record(run.best)["config"]["value"]))
        if (fresh or not on_first(run.before.exists)) and self._looks_before():
            best, *others = self._measured_before(trainer)
            for other in others:  # the file that is looked for is written last
                on_first(partial(write_text, run.untouched, other.to_json()))
            on_first(partial(write_text, run.before, best.to_json()))
        if self.settings.frozen:
            features = on_first(lambda: self._features(run.features, fresh))
            self.data.dataset = Listed(features, self.rows.labels)

    def _measured_before(self, trainer: L.Trainer) -> list[Report]:
        """Reports of the model before training, the best first: of a pretrained network at the size of its use, at the
        size of its pretraining, or at both. The user has it at any size, so training must be better than the best.
        """
        model, use, reports = self._untouched(), self.settings.evaluation.size, []
        for size in building.sizes_before(self.settings):
            rows, transform = building.at_size(self.settings, self.rows.test, size)
            started = time.perf_counter()
            reports.append(self._report(trainer, model, rows, transform, size=size)[0])
            if size != use:
                value, seconds = 100 * reports[-1].values["mAP@R"], time.perf_counter() - started
                self.say(f"untouched, at {size} pixels: mAP@R {value:.1f}, measured in {seconds:.0f} s")
        return sorted(reports, key=lambda report: -report.values["mAP@R"])

    def _untouched(self) -> nn.Module:
        """The model before training; a pretrained backbone without its new head, which has random weights."""
        model = self.model
        if not isinstance(model, EmbeddingModel) or not self.settings.pretrained:
            return model
        return model.with_head(EmbeddingHead(model.feature_size, None))

    def _looks_before(self) -> bool:
        """Whether the untrained model is evaluated. On large data this may take as long as the training.

        It is never evaluated on a sample of the queries, because the result could not be compared with the final one.
        """
        wanted, pairs = self.settings.evaluation.before, len(self.rows.test) ** 2
        if self.settings.lean or wanted != "auto":
            return bool(wanted) and not self.settings.lean
        if pairs > PAIRS:
            self.say(f"the untrained model is not evaluated on {pairs:,} pairs; to do it, add evaluation.before=true")
        return pairs <= PAIRS

    def _features(self, cache: Path, anew: bool) -> Tensor:
        """Features of the training rows. They are computed once and saved in the run's folder."""
        if cache.exists() and not anew:
            features: Tensor = read_plain(cache)
            return features
        table, size, workers = self.rows.train, self.settings.evaluation.batch_size, self.settings.data.workers
        batches = in_order(table.dataset(), table.batches(self.transform), size, workers)
        assert isinstance(self.model, EmbeddingModel)
        features = extract_features(self.model, batches, progress=self.bars)
        write_plain(cache, features)
        return features

    def _evaluated(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        report, embeddings = self._report(trainer, model, self.rows.test, self.transform)
        if self.settings.evaluation.keep_best == "val":
            chosen, _ = self._report(trainer, model, self.rows.held_out, self.transform, **FEW)
            report = replace(report, values={**report.values, CHOSEN_BY["val"]: chosen.values["R@1"]})
        return report.values, EvaluatedEmbeddings(report, embeddings)

    def _report(
        self, trainer: L.Trainer, model: nn.Module, table: Rows | None, transform: Any, **changes: Any
    ) -> tuple[Report, Tensor]:
        assert table is not None
        settings, device = self.settings, trainer.strategy.root_device
        how: dict[str, Any] = {"workers": settings.data.workers, "seed": settings.seed, "progress": self.bars}
        asked = {**vars(settings.evaluation), **changes}
        if not settings.pretrained:
            asked["size"] = None  # there is one only, and it needs no name
        return evaluate_model(model, table, transform, asked, device=device, **how)

    def _choose_share(self, trainer: L.Trainer, model: nn.Module) -> None:
        """Set the share of the trained weights to the one with the best mAP@R on the held-out classes."""
        found = {}
        for share in SHARES:
            self.averaging.share = share
            with self.averaging.applied():
                report, _ = self._report(trainer, model, self.rows.held_out, self.transform, **FEW)
                found[share] = report.values["mAP@R"]
        self.averaging.share = max(found, key=lambda share: found[share])
        told = ", ".join(f"{100 * value:.1f} with {share:.0%}" for share, value in found.items())
        self.say(f"optimizer.average {self.averaging.share:g}: mAP@R on the held-out classes is {told} trained weights")

    def _keep_best(self, trainer: L.Trainer, values: Mapping[str, float]) -> None:
        """Write the weights if this evaluation is better than all earlier ones."""
        where = self.settings.evaluation.keep_best
        if where is None or self.run is None or values[CHOSEN_BY[where]] <= self.best:
            return
        self.best = values[CHOSEN_BY[where]]
        if trainer.is_global_zero:
            save_weights(self.run.best, self.model, {"steps": trainer.global_step, "value": self.best})

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        """Evaluate by the protocol of the data."""
        if self.chooses_share:
            self._choose_share(trainer, model)
        with self.averaging.applied():
            values, evaluated = self._evaluated(trainer, model)
            if trainer.training:
                self._keep_best(trainer, values)
        return values, evaluated

    def trained(self) -> nn.Module:
        """The whole model, also if only its head was trained."""
        if not self.settings.frozen:
            return self.model
        assert isinstance(self.model, EmbeddingModel) and isinstance(self.module.model, EmbeddingHead)
        return self.model.with_head(self.module.model)

    def write(self, run: Run, result: EvaluatedEmbeddings, facts: dict[str, Any]) -> str:
        """Write weights, embeddings, facts and page, and return the report. A lean run keeps only the numbers."""
        share = {"average": self.averaging.share} if self.chooses_share else {}
        facts = {**facts, **share, REMARKS: self.rows.table.caveats}
        if not self.settings.lean:
            with self.averaging.applied():
                data = plain(OmegaConf.load(run.config).data)  # it was written by this run
                save_weights(run.weights, self.trained(), {"data": data, "version": __version__})
            save_embeddings(run.embeddings, result.embeddings, self.rows.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        if self.settings.lean:
            run.state.unlink(missing_ok=True)
        else:
            content = read_run(run, after=result.report, table=self.rows.test, trust=self.settings.trust)
            write_report(run.page, [content])
        return result.report.to_json()


def build(
    config: DictConfig, quiet: bool = False, say: runner.Say = runner.silent, given: Given | None = None
) -> RetrievalTask:
    """The task of a run: its settings are checked, then its rows are read, and model, batches and loss are built.

    Args:
        config: settings of the run.
        quiet: show no progress bars.
        say: function that prints a text: rows and classes by split, then batches, loss and learning rate.
        given: objects in place of settings.
    """
    settings = settings_of(config)
    building.check(settings)
    rows = RetrievalRows.of(building.load_table(settings, None if given is None else given.table, say), settings)
    if given is None:
        made = building.model_of(settings, rows.table)
        given = Given(made, made.embedding_size)
    model = given.model
    data = _batches(settings, rows)
    with named_as_settings():
        even, batches = data.sampler.even, len(data.sampler)
    epochs, steps = _epochs(settings, batches), runner.steps_of(settings.trainer, batches)
    chooses, share = building.chooses_share(settings, rows.table), settings.optimizer["average"]
    if not isinstance(share, (int, float)):  # until it is chosen, that of the untouched network
        share = 0.0 if chooses else defaults.share_kept(epochs * steps)
    settled = {
        "derived.num_classes": int(rows.labels.max()) + 1,
        "derived.embedding_size": given.embedding_size,
        "trainer.max_epochs": epochs,
        "optimizer.average": BEST if chooses else share,
    }
    of_the_trainer, settings = settings.trainer, settings_of(replaced(config, settled))
    loss = building.loss_of(settings, rows, data.sampler, given.loss)
    trains_only = building.train_only(model, settings.optimizer["only"])
    averaging = Averaging(model.backbone if isinstance(model, EmbeddingModel) else model, share)
    targets = building.targets_of(settings, rows.train)
    if targets is not None:
        building.check_targets(loss, targets)
    learner = _new_head(settings, model) if settings.frozen else model
    optimizer = {**settings.optimizer, "extended": settings.extended}
    module = RetrievalModule(learner, loss, optimizer, settings.sub_batch, even, targets)
    if learner is model and isinstance(model, EmbeddingModel):
        # needed to build the model from a state, see `saved`
        module.kept |= {"model": model.config, "pixels": [list(model.pixel_mean), list(model.pixel_std)]}
    transform = make(settings.data.eval_transform, slot="transform", trust=settings.trust)
    task = RetrievalTask(settings, settled, rows, model, module, data, averaging, transform, chooses, quiet, say)
    say(task.chosen(trains_only))
    say(runner.budget(of_the_trainer, batches, epochs))
    return task


def _batches(settings: RetrievalSettings, rows: RetrievalRows) -> TrainingData:
    """The batches. With frozen=true, the rows are replaced by their features in `begin`."""
    transform, workers = Collated(), 0
    if not settings.frozen:
        transform = make(settings.data.train_transform, slot="transform", trust=settings.trust)
        workers = settings.data.workers
    table = building.relabelled(rows.train, rows.labels)
    return TrainingData(table, rows.labels, transform, settings.sampler, settings.seed, workers)


def _epochs(settings: RetrievalSettings, batches: int) -> int:
    """Number of epochs, as given or for this number of batches."""
    if settings.trainer["max_epochs"] is not None:
        return int(settings.trainer["max_epochs"])
    passes, fewest = settings.data.epochs, defaults.FEWEST_STEPS
    if defaults.trained_before(settings.model) and not settings.frozen:
        passes, fewest = defaults.PASSES_FINE_TUNED, defaults.FEWEST_STEPS_FINE_TUNED
    return defaults.epochs_for(runner.steps_of(settings.trainer, batches), passes, fewest, defaults.MOST_STEPS)


def _new_head(settings: RetrievalSettings, model: nn.Module) -> EmbeddingHead:
    """A new head on the features of the model, for frozen=true."""
    kind, trained = settings.model.get("head"), settings.init is not None or defaults.trained_before(settings.model)
    if not trained or kind == "none" or settings.evaluation.every:
        raise ConfigError(
            "frozen=true trains only a new head: it needs a trained network (init=RUN, or pretrained weights), a "
            "model.head but none, and no evaluation.every"
        )
    assert isinstance(model, EmbeddingModel)  # `fit` refuses frozen=true
    head = EmbeddingHead(model.feature_size, settings.model["embedding_size"], kind or "linear")
    head.start_as_projection()
    return head


def _name(config: DictConfig) -> str:
    """Name of a run: data and loss."""
    return f"{config.data.name}-{loss_name(plain(config)).replace(' ', '').strip('<>')}"


def check_data(config: DictConfig) -> None:
    """Raise if the data cannot be read or divided as the settings say."""
    building.load_table(settings_of(config))


TASK: runner.TaskType[EvaluatedEmbeddings] = runner.TaskType("retrieval", _name, build)


#: Train a retrieval model, evaluate it before and after, and write the run's folder. See `runner.train`.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """Metrics before and after training in per cent, and the paths of the results."""
    after, others = Report.from_json(run.after), [run.read_before(), run.read_untouched()]
    begun = [report for report in others if report is not None]
    names = [at_size("before", each.settings) for each in begun] or ["before"]
    rows = [["", *names, at_size("after", after.settings), "95 % interval"]]
    for name in (name for name in MAIN if name in after.values):
        was = [report.values.get(name) for report in begun] or [None]
        around = " - ".join(f"{100 * end:.1f}" for end in after.intervals.get(name, ()))
        values = ["-" if value is None else f"{100 * value:.1f}" for value in (*was, after.values[name])]
        rows.append([name, *values, around])
    page = [f"report: {run.page}"] if run.page.exists() else []
    wrong = [f"! {warned}" for warned in (*other_counts(run), *below_before(run))]
    return "\n".join([aligned(rows), *after.notes, *remarks_of(run), "", f"run:    {run.folder}", *page, *wrong])
