"""The task of search: train encoders of queries and documents, and judge them beside BM25 and beside no training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch import Tensor, nn

from rankgrad._version import __version__
from rankgrad.batches.distributed import gather_rows, on_first, share, world
from rankgrad.common.checks import spelled
from rankgrad.search.retrieval import topk_of_blocks

from ...datasets.fingerprint import of_values
from ...datasets.tabular import AUTO
from ...files import defaults, write_text
from ...models import build_model
from ...models.embedding_model import parameter_groups
from ...report.content import loss_name, loss_told
from ...runs.folder import Run
from ...settings import ConfigError, make, packages, plain, typed
from ...settings.spelling import as_keys
from ...training import runner
from ...training.averaging import Averaging
from ...training.callbacks import KeepBest
from ...training.measuring import look
from ...training.module import TrainedModule, check_optimizer
from . import systems
from .batches import Miner, QueryLists, SearchBatch, search_data
from .bm25 import Words, bm25
from .collection import Array, Collection
from .division import collection_of
from .encoders import Encoders, Found, Side, StoredRows, encoders
from .evaluation import BEFORE, MAIN, TRAINED, SearchReport, evaluate_systems, main_values, write_lists
from .page import write_page
from .settings import SearchSettings
from .sizes import loss_of_widths, sizes_of

KEPT, KEPT_FINE_TUNED = 20, 5  # times that the validation queries judge the model during a training
SURE = 2.0  # standard errors by which the training of a pretrained model must be better than none

Evaluated = tuple[SearchReport, Mapping[str, Found]]  # a report, and the lists of each system


class SearchModule(TrainedModule):
    """Encoders and a loss of lists.

    Args:
        model: the encoders.
        loss: a loss with `from_scores(scores, relevance, valid)`.
        optimizer: settings, see `TrainedModule`, and head_lr_factor.
        part: number of texts that are embedded at a time; None: all.
        widths: see `sizes.loss_of_widths`.
    """

    def __init__(
        self, model: Encoders, loss: nn.Module, optimizer: Mapping[str, Any], part: int | None, widths: Sequence[int]
    ) -> None:
        super().__init__(model, optimizer)
        self.loss, self.part, self.widths = loss, part, widths
        self._last: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def training_step(self, batch: SearchBatch, batch_idx: int) -> Tensor:
        """Loss of a batch, on cosines."""
        queries, documents = self._embedded(batch.queries, "query"), self._embedded(batch.documents, "document")
        relevance, valid = batch.relevance, batch.valid
        if getattr(self.loss, "soft", False):  # learns from the scores of a teacher
            relevance, valid = batch.scores.nan_to_num(), valid & ~batch.scores.isnan()
        loss, scores = loss_of_widths(self.loss, queries, documents, relevance, valid, self.widths)
        self._last = documents.detach(), scores.detach(), batch.relevance > 0, batch.valid
        self.note(loss, {"documents": torch.tensor(float(len(batch.documents)))})
        return loss

    def _embedded(self, texts: list[str], side: Side) -> Tensor:
        """[text, dim] with gradient. Each of several processes embeds every W-th text, and gets all embeddings."""
        mine = texts[share(len(texts))]
        # a process without a text embeds one, too: its weights take part in the gradient of all
        rows = self.model(mine or texts[:1], side, self.part)[: len(mine)]
        order = [place for rank in range(world()[1]) for place in range(len(texts))[rank :: world()[1]]]
        return gather_rows(rows)[torch.tensor(order, device=rows.device).argsort()]

    def learned(self) -> list[dict[str, Any]]:
        """Parameter groups of the encoders."""
        rates = [self.settings[name] for name in ("lr", "head_lr_factor", "weight_decay")]
        each: dict[Any, None] = dict.fromkeys([self.model.document, self.model.query])  # one, or two
        return [group for encoder in each for group in parameter_groups(encoder, *rates)]

    def examine(self) -> dict[str, float]:
        """Cosines of relevant and of irrelevant pairs, and the statistics of the documents of the last batch."""
        assert self._last is not None
        documents, scores, relevant, valid = self._last
        rest = valid & ~relevant
        best_wrong = scores.masked_fill(~rest, -torch.inf).amax(1, keepdim=True)
        return {
            **look(documents, torch.arange(len(documents), device=documents.device)),
            "no_positive": float((~relevant.any(1)).float().mean()),
            "positive": float(scores[relevant].mean()),  # NaN without such a pair
            "negative": float(scores[rest].mean()),
            "wrong": float((scores < best_wrong)[relevant].float().mean()),
            "dim": documents.shape[1],
        }


@dataclass(eq=False)
class SearchTask:
    """See `training.runner.Task`. `build` makes one from the settings of a run.

    Args:
        settings: of the run.
        lists: the training queries of its collection.
        loss: a loss with `from_scores`.
        encoders: the model.
        quiet: show no progress bars.
        pretrained: whether the model begins with weights that were trained before.
        trust: packages whose classes the settings may name.

    Attributes:
        epochs: number of epochs.
    """

    settings: SearchSettings
    lists: QueryLists
    loss: nn.Module
    encoders: Encoders
    quiet: bool = False
    pretrained: bool = False
    trust: Sequence[str] = ()

    memories: ClassVar[Sequence[str]] = ()
    off_counts: ClassVar[str] = ""  # no collection of documents has published counts here

    def __post_init__(self) -> None:
        s, self.collection = self.settings, self.lists.collection
        self.bars = bool(s.trainer["enable_progress_bar"]) and not self.quiet
        self.data = search_data(self.lists, s.sampler, s.seed)
        optimizer = {**s.optimizer, "extended": s.extended}
        self.module = SearchModule(self.encoders, self.loss, optimizer, s.sub_batch, s.widths)
        steps, self.epochs = runner.steps_of(s.trainer, len(self.data.sampler)), s.trainer["max_epochs"]
        if self.epochs is None:
            length = (defaults.PASSES_OF_QUERIES, defaults.FEWEST_STEPS)
            if self.pretrained:
                length = (defaults.PASSES_FINE_TUNED, defaults.FEWEST_STEPS_FINE_TUNED)
            self.epochs = defaults.epochs_for(steps, *length, defaults.MOST_STEPS)
        average = s.optimizer["average"]
        share = defaults.share_kept(self.epochs * steps) if average is None else average
        self.averaging = Averaging(self.encoders, share)
        self.untrained: dict[str, Found] = {}
        self._embedded: dict[str, StoredRows] = {}
        self._folder: Path | None = None
        self.miner, self.keep_best = self._miner(), self._best_epoch()

    @cached_property
    def words(self) -> Words:
        """How BM25 reads and weighs. It is chosen when it is first needed: many trials never do."""
        return systems.chosen_words(self.settings, self.collection)

    @property
    def settled(self) -> Mapping[str, Any]:
        """Loss, number of epochs, and share of the trained weights."""
        found = {"loss": dict(self.settings.loss), "trainer.max_epochs": self.epochs}
        return {**found, "optimizer.average": self.averaging.share}

    def _best_epoch(self) -> KeepBest | None:
        """The callback that keeps the best epoch; None: no queries choose one."""
        rows = self.collection.rows("val")
        if not self.settings.evaluation.select or not len(rows):
            return None

        def measure(model: nn.Module) -> Array:
            with self.averaging.applied():
                return on_first(lambda: main_values(self._found("val"), self.collection, rows, "val"))

        # a pretrained model can be used as it is, so a training must surely be better
        times, errors = (KEPT_FINE_TUNED, SURE) if self.pretrained else (KEPT, 0.0)
        return KeepBest(MAIN, measure, first=True, times=times, errors=errors)

    def _found(self, split: str) -> Found:
        """The lists of the model for the queries of a split."""
        rows, s = self.collection.rows(split), self.settings.evaluation
        return systems.by_model(self.encoders, self.collection, rows, s.depth, self._corpus(), s.batch_size, self.bars)

    def _corpus(self) -> StoredRows:
        """Embeddings of the documents by the present weights. Those of the last weights are kept."""
        weights = self.encoders.document.state_dict().items()
        key = str([of_values(name, value) for name, value in weights])
        if key not in self._embedded:
            texts, size = self.collection.documents.texts, self.settings.evaluation.batch_size
            self._embedded = dict([*self._embedded.items()][-1:])
            self._embedded[key] = StoredRows(self.encoders.embed_in_blocks(texts, size, self.bars), self._folder)
        return self._embedded[key]

    def _miner(self) -> Miner | None:
        """The callback that mines; None: nothing is mined."""
        mining, lists, collection = self.settings.mining, self.lists, self.collection
        if mining.by == "none" or not self.settings.sampler.negatives_per_query:
            return None
        queries = [collection.queries.texts[row] for row in lists.rows.tolist()]
        relevant = [lists.of(row).document[lists.of(row).grade > 0] for row in lists.rows.tolist()]

        def by_words() -> tuple[Found, Array]:
            found = bm25(queries, collection.documents.texts, mining.last, self.words)
            hit = np.array([np.isin(row, own) for row, own in zip(found.document, relevant, strict=True)])
            return found, np.where(hit.any(1), np.where(hit, found.score, -np.inf).max(1), np.nan)

        def by_model() -> tuple[Found, Array]:
            corpus = self._corpus()
            asked = self.encoders.embed(queries, "query", self.settings.evaluation.batch_size, self.bars)
            score, row = topk_of_blocks(asked, corpus.blocks(), mining.last)
            best = [float((corpus.take(rows.tolist()) @ asked[at]).max()) for at, rows in enumerate(relevant)]
            return Found(row.numpy(), score.double().numpy()), np.array(best)

        return Miner(lists, partial(on_first, by_words if mining.by == "bm25" else by_model), mining)

    def chosen(self) -> str:
        """A line each for batches, loss, prompts and length."""
        sampler, s = self.data.sampler, self.settings.sampler
        most = s.positives_per_query
        relevant = "all their relevant documents" if most is None else f"up to {most} relevant documents each"
        lines = [
            f"batches of {sampler.batch_size} queries with {relevant}, {s.negatives_per_query} irrelevant ones each, "
            f"and those of the other queries; {len(sampler)} an epoch",
            f"loss {loss_told(self.settings.loss)}{' on grades' if self.lists.graded else ''}, on cosines",
        ]
        if prompts := [f"{side}: {text!r}" for side, text in self.encoders.prompts.items() if text]:
            lines.append(f"prompts {', '.join(prompts)}")
        return "\n".join([*lines, runner.budget(self.settings.trainer, len(sampler), self.epochs)])

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the collection."""
        return self.collection.fingerprint()

    def callbacks(self) -> list[Callback]:
        """Callbacks that choose hard negatives and keep the best epoch."""
        return [each for each in (self.miner, self.keep_best) if each is not None]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Search with the untrained model."""
        self._folder = run.folder
        self.encoders.to(trainer.strategy.root_device)
        if self.miner is not None and fresh:
            self.miner.again()
        if self.settings.lean:
            return
        splits = ("test", "val") if self.pretrained and len(self.collection.rows("val")) else ("test",)
        self.untrained = on_first(lambda: {split: self._found(split) for split in splits})
        report = evaluate_systems({TRAINED: self.untrained["test"]}, self.collection, bootstrap=0)
        on_first(lambda: write_text(run.before, json.dumps({"values": report.values})))

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], Evaluated]:
        """Measures of the test queries; after the training beside those of the other systems."""
        final = not trainer.training and not self.settings.lean
        with self.averaging.applied():
            result = on_first(self._judged if final else self._measured)
        return result[0].values, result

    def _measured(self) -> Evaluated:
        """The model alone."""
        lists = {TRAINED: self._found("test")}
        return evaluate_systems(lists, self.collection, bootstrap=0, seed=self.settings.seed), lists

    def _judged(self) -> Evaluated:
        """The model beside the other systems."""
        s, collection, kept = self.settings, self.collection, self._kept()
        # a model that is kept as it was is not another system
        models = {BEFORE: partial(self.untrained.__getitem__, "val")} if "val" in self.untrained and not kept else {}
        chosen = systems.choose({**models, TRAINED: partial(self._found, "val")}, collection, s, self.words)
        before = {BEFORE: self.untrained["test"]} if "test" in self.untrained else {}
        return systems.judged(
            {**before, TRAINED: self._found("test")},
            collection,
            s,
            chosen,
            bootstrap=s.evaluation.bootstrap,
            smaller=sizes_of(self.encoders, self._corpus(), collection, s),
            pretrained=self.pretrained,
            kept=kept,
        )

    def _kept(self) -> str | None:
        """Why the model is kept as it was before the training; None: it is not."""
        best = self.keep_best
        if best is None or best.epoch or best.value is None:
            return None
        gained = ""
        if best.gain is not None:
            mean, error = (100 * value for value in best.gain)
            gained = f" (the training gained {mean:+.1f} {MAIN} at best, with a standard error of {error:.1f}, and "
            gained += f"{best.errors:g} of these are needed)"
        return (
            f"The model is kept as it was: on the validation queries no epoch was surely better{gained}. "
            "evaluation.select=false keeps the trained weights."
        )

    def trained(self) -> nn.Module:
        """The encoders with the weights of the best epoch."""
        if self.keep_best is not None:
            self.keep_best.restore(self.encoders)
        return self.encoders

    def write(self, run: Run, result: Evaluated, facts: dict[str, Any]) -> str:
        """Write model, lists, facts and page, and return the report. A lean run keeps only the numbers."""
        if best := self.keep_best:
            facts |= {"best_epoch": best.epoch, "best_validation": best.value, "gain": best.gain}
        report, lists = result
        facts |= {"verdict": [*report.verdict], "notes": [*report.notes]}
        write_text(run.facts, json.dumps(facts, indent=1))
        if self.settings.lean:
            run.state.unlink(missing_ok=True)
            return report.to_json()
        with self.averaging.applied():
            self.encoders.save(run.weights, version=__version__)
        write_lists(run.folder, lists, self.collection)
        write_page(run, report, self.trust)
        return report.to_json()


def _loss_of(settings: SearchSettings, trust: Sequence[str]) -> nn.Module:
    """The loss.

    Raises:
        ConfigError: it is no loss of lists, or other settings do not fit.
    """
    known = {name: 1 if value == AUTO else value for name, value in settings.loss.items()}
    loss = make(known, slot="loss", trust=trust, where="loss")
    if not hasattr(loss, "from_scores"):
        raise ConfigError(
            f"{type(loss).__name__} has no method from_scores, which task=search needs. Choose another loss"
        )
    return loss  # type: ignore[no-any-return]


def _lists_of(collection: Collection, loss: nn.Module, settings: SearchSettings) -> QueryLists:
    """The training queries of a collection, for a loss.

    Raises:
        ConfigError: there is nothing to learn from.
    """
    graded = not collection.pairs("train").binary and bool(getattr(loss, "graded", True))
    lists = QueryLists(collection, settings.sampler, settings.seed, graded)
    wrong = ""
    if not len(lists):
        wrong = "no training query has a relevant document with a text, so there is nothing to learn from"
    elif settings.mining.by != "none" and settings.mining.first > len(collection.documents):
        wrong = f"mining.first={settings.mining.first} is behind the last of {len(collection.documents):,} documents"
    elif getattr(loss, "soft", False) and np.isnan(lists.judged.score).all():
        wrong = f"{type(loss).__name__} learns from the scores of a teacher, and there are none: add a column 'score' "
        wrong += "(or 'scores'), or choose another loss"
    if wrong:
        raise ConfigError(f"{collection.name}: {wrong}")
    return lists


def encoders_of(settings: SearchSettings) -> Encoders:
    """The encoders before the training."""
    options = {name: value for name, value in settings.model.items() if name != "kind"}
    with spelled(as_keys("model", {})):
        model = build_model(settings.model["kind"], **options)
    wide = [width for width in settings.widths if width > model.embedding_size]
    if wide:
        raise ConfigError(
            f"widths are numbers of columns of an embedding, which has {model.embedding_size}; got {wide[0]}"
        )
    return encoders(model, settings.encoders, settings.prompts.query, settings.prompts.document)


def build(config: DictConfig, quiet: bool = False, say: runner.Say = runner.silent) -> SearchTask:
    """The task of a run: its settings are checked, then its data is read, and its model is built.

    Args:
        config: settings of the run.
        quiet: show no progress bars.
        say: function that prints a text: the collection, then batches and loss.
    """
    settings, trust = settings_of(config), packages(config.get("trust"))
    check_optimizer(settings.optimizer)
    _loss_of(settings, trust)  # wrong settings are told before the data is read
    model = encoders_of(settings)
    collection = collection_of(settings)
    say(collection.summary())
    grades = collection.pairs("train").grade
    if settings.loss.get("highest") == AUTO and len(grades):
        settings = replace(settings, loss={**settings.loss, "highest": max(float(grades.max()), 1.0)})
    loss = _loss_of(settings, trust)
    task = SearchTask(
        settings,
        _lists_of(collection, loss, settings),
        loss,
        model,
        quiet=quiet,
        pretrained=defaults.trained_before(settings.model),
        trust=trust,
    )
    say(task.chosen())
    return task


def _name(config: DictConfig) -> str:
    """Name of a run: data and loss."""
    return f"{Path(config.data.root).stem}-{loss_name(plain(config))}"


TASK: runner.TaskType[Evaluated] = runner.TaskType("search", _name, build)
#: Train encoders, evaluate them beside other systems and write the run's folder. See `runner.train`.
train = partial(runner.train, TASK)


def settings_of(config: DictConfig) -> SearchSettings:
    """The settings of a run, typed."""
    return typed(SearchSettings, plain(config))


def check_data(config: DictConfig) -> None:
    """Raise if the data of a run cannot be read or divided."""
    collection_of(settings_of(config))


def summary(run: Run) -> str:
    """The table of the systems, the verdict, and the paths of the results."""
    report, facts = SearchReport.from_json(run.after), run.read_facts()
    kept = f"; the weights are those of epoch {facts['best_epoch']}" if "best_epoch" in facts else ""
    page = [f"report: {run.page}"] if run.page.exists() else []
    return "\n".join([str(report), "", f"trained {facts['steps']} steps{kept}", f"run:    {run.folder}", *page])


__all__ = ["SearchModule", "SearchTask", "TASK", "build", "summary", "train"]
