"""What a page shows of a run, whatever its kind: settings, curves, numbers, and sections of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from markupsafe import Markup

from ..config import flat
from ..datasets.vectors import FORMATS
from ..files import AGAIN, read_json
from ..html.images import Images
from ..runs.folder import Run
from ..runs.history import curves, evaluations
from ..runs.log import TEST
from ..tasks import TASKS

Curves = Mapping[str, Sequence[tuple[float, float]]]
Interval = tuple[float, float]
Method = Literal["pca", "tsne"]


class Evaluated(Protocol):
    """Numbers of an evaluation, as `evaluation.Report` has them."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metric -> value."""
        ...

    @property
    def intervals(self) -> Mapping[str, Interval]:
        """Metric -> (low, high), of those that have one."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What was counted."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """How it was done."""
        ...


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        key: its place in the page's address.
        title: its heading.
        body: what stands below; a section without is left out.
        data: what its script needs, by name.
    """

    key: str
    title: str
    body: Markup
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Extent:
    """How much a page shows of runs that retrieve.

    Attributes:
        projection: of the map: "pca", or "tsne" (needs scikit-learn, seconds per thousand points).
        queries: asked at most for histograms, curve, confusions and pictures; of more, a sample is drawn.
        points: of the map, at most.
        items: shown per query.
    """

    projection: Method = "pca"
    queries: int = 4000
    points: int = 2000
    items: int = 10

    def __post_init__(self) -> None:
        if min(self.queries, self.points, self.items) < 1:
            given = f"{self.queries}, {self.points} and {self.items}"
            raise ValueError(f"queries, points and items must be >= 1; got {given}")
        if self.projection not in ("pca", "tsne"):
            raise ValueError(f"projection must be 'pca' or 'tsne'; got {self.projection!r}")


@dataclass(frozen=True, eq=False)
class RunContent(ABC):
    """A run as a page shows it. A kind of run is a subclass: it adds what it has, and draws it in `sections`.

    Attributes:
        name: what the page calls the run.
        config: its settings, plain and nested.
        facts: steps, seconds, versions.
        curves: name -> (step, value) pairs.
        before: evaluation of the untrained network, or None.
        after: evaluation of the trained network; None: the run is not finished.
        latest: (steps done, test metrics) of the last evaluation during training, if it is not finished; or None.
        notes: what a reader must know first.
        siblings: the same run with other seeds; their curves stand behind its own.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    before: Evaluated | None = None
    after: Evaluated | None = None
    latest: tuple[int, Mapping[str, float]] | None = None
    notes: tuple[str, ...] = ()
    siblings: tuple[RunContent, ...] = ()

    kind: ClassVar[str]  # a key of `tasks.TASKS`

    @property
    @abstractmethod
    def headline(self) -> tuple[str, ...]:
        """Metrics of the tiles; the first orders what is compared."""

    @property
    @abstractmethod
    def main(self) -> tuple[str, ...]:
        """Metrics of the table; the others stand behind it."""

    @classmethod
    @abstractmethod
    def sections(cls, runs: Sequence[Any], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """What only runs of this kind have, side by side, and notes on it. Pictures go to `images`."""

    @property
    def loss(self) -> str:
        """What the loss is called: its class; of a wrapped one, the class inside."""
        return loss_name(self.config)

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics of the evaluation after training, or of the last one before that."""
        if self.after is not None:
            return self.after.values
        return self.latest[1] if self.latest is not None else {}

    @property
    def settings(self) -> dict[str, object]:
        """Everything that was set and noted, by dotted names."""
        settings = flat({key: value for key, value in self.config.items() if key not in ("out", "resume")})
        settings |= {f"run: {key}": value for key, value in flat(self.facts).items()}
        if self.after is not None:
            settings |= {f"evaluation: {key}": value for key, value in flat(self.after.settings).items()}
        return settings


# Their loss goes by a name: of another library, or handed over in Python with its arguments.
SHELLS = ("CalledLoss", "SentenceTransformersLoss")


def loss_name(config: Mapping[str, Any]) -> str:
    """Class of the loss of a configuration; without a class its name; of a sum the names of its parts.

    >>> adapter = {"_target_": "rankgrad.losses.baselines.PMLLoss", "loss": {"_target_": "pml.losses.TripletLoss"}}
    >>> loss_name({"loss": adapter})
    'TripletLoss'
    >>> loss_name({"loss": {"name": "cross_entropy", "_target_": None}})
    'cross_entropy'
    >>> loss_name({"loss": {"_target_": "rankgrad.losses.SumLoss", "losses": {"supap": {}, "triplet": {}}}})
    'supap + triplet'
    """
    loss = config.get("loss")
    if not isinstance(loss, Mapping):
        return str(loss or "")
    inner, parts = loss.get("loss"), loss.get("losses")
    if isinstance(inner, Mapping):
        return loss_name(loss)
    if isinstance(parts, Mapping):
        return " + ".join(map(str, parts))
    kind = str(loss.get("_target_") or "").rpartition(".")[2]
    called = str(loss.get("name") or "").partition("(")[0].rpartition(".")[2]
    return called if not kind or kind in SHELLS else kind


def named(value: object) -> str:
    """Name of a part of a configuration: data, model."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("kind") or ""
    return "" if value is None else str(value)


# ------------------------------------------------------------------------------------------------------------- reading


def kind_of(run: Run) -> str:
    """Kind of a run, a key of `tasks.TASKS`.

    Raises:
        FileNotFoundError: the folder is no run.
    """
    if not run.config.exists():
        raise FileNotFoundError(f"{run.folder} is no run: it has no config.yaml. Give the folder that a training made")
    return run.kind


def read_runs(
    folders: Sequence[Path], *, pictures: bool = True, trust: Sequence[str] = (), images: Path | None = None
) -> list[RunContent]:
    """Read several runs of one kind; those that see the same images share them, and each has a name of its own.

    Args:
        folders: of the runs; a file of embeddings (npz, parquet) counts as a run that retrieves.
        pictures: False: numbers and curves alone.
        trust: packages whose classes their settings may name; see `config.load`.
        images: folder that the names in such a file are relative to.

    Raises:
        FileNotFoundError: a folder is no run.
        ValueError: the same folder twice, runs of several kinds.
    """
    places = [folder.resolve() for folder in folders]
    twice = [str(folder) for folder, times in Counter(places).items() if times > 1]
    if twice:
        raise ValueError(f"a run is compared with others, not with itself: {twice[0]} is given more than once")
    kinds: dict[str, str] = {
        str(place): "retrieval" if place.suffix in FORMATS else kind_of(Run(place)) for place in folders
    }
    one_kind(kinds)
    known: dict[str, Any] = {}
    contents = []
    for place, kind in zip(folders, kinds.values(), strict=True):
        reader = import_module(TASKS[kind].reads)
        if place.suffix in FORMATS:
            contents.append(reader.read_embeddings(place, images))
        else:
            contents.append(reader.read(Run(place), known=known, pictures=pictures, trust=trust))
    called = [place.with_suffix("") if place.suffix in FORMATS else place for place in places]
    return [replace(content, name=name) for content, name in zip(contents, short_names(called), strict=True)]


def one_kind(kinds: Mapping[str, str]) -> None:
    """Raise unless all runs are of one kind.

    Args:
        kinds: name of a run -> its kind.

    Raises:
        ValueError: two kinds.
    """
    first = next(iter(kinds), "")
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise ValueError(
                f"one page is of one kind of run: {first} is of {kinds[first]} and {name} of {kind}. Write a page for "
                "each kind"
            )


def short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell them apart, without the words between hyphens that all begin or end with.

    >>> short_names([Path("a/x/run"), Path("a/y/run")]), short_names([Path("a/pnp-seed0"), Path("a/auc-seed0")])
    (['x/run', 'y/run'], ['pnp', 'auc'])
    """
    names = [str(folder) for folder in folders]
    for parts in range(1, max((len(folder.parts) for folder in folders), default=0) + 1):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            break
    words = [name.split("-") for name in names]
    for end in (0, -1):
        while len(words) > 1 and min(map(len, words)) > 1 and len({each[end] for each in words}) == 1:
            for each in words:
                del each[end]
    return ["-".join(each) for each in words]


def read_common(run: Run, after: Evaluated | None, trust: Sequence[str] = ()) -> dict[str, Any]:
    """What a run of any kind has, as arguments of its `RunContent`.

    Args:
        run: the folder.
        after: evaluation of the trained model; None: the run is not finished.
        trust: packages whose classes its settings may name.
    """
    from ..config import load, plain

    logged = curves(run)
    latest, notes = None, []
    if after is None:
        tested = evaluations(run)
        latest = (max(tested), tested[max(tested)]) if tested else None
        notes.append(_how_far(run, logged, latest))
    elif logged:
        last = max(step for points in logged.values() for step, _ in points)
        for name, points in logged.items():  # the result belongs to the curves, and is not logged
            value = after.values.get(name.removeprefix(TEST))
            if name.startswith(TEST) and value is not None:
                points.append((last, value))
    return {
        "name": run.folder.resolve().name,
        "config": plain(load(run.config, trust)),
        "facts": run.read_facts(),
        "curves": logged,
        "after": after,
        "latest": latest,
        "notes": (*notes, *_findings(run)),
    }


def _how_far(run: Run, logged: Curves, latest: tuple[int, Mapping[str, float]] | None) -> str:
    steps = max((step for points in logged.values() for step, _ in points), default=None)
    reached = "nothing is logged yet" if steps is None else f"it has logged {steps:.0f} steps"
    shown = f", and the numbers are of the evaluation after {latest[0]:,} steps" if latest else ""
    return (
        f"This run is not finished: {reached}{shown}. Pictures, tables and histograms come with the evaluation after "
        f"training; rankgrad {TASKS[run.kind].command} resume={run.folder} goes on with it."
    )


def _findings(run: Run) -> list[str]:
    """What the look at training found to be wrong, with what helps."""
    if not run.health.exists():
        return []
    findings = read_json(run.health, "findings")["findings"]
    try:
        return [f"{finding['text']}. {finding['advice']}" for finding in findings if finding["level"] == "warning"]
    except (KeyError, TypeError):
        raise ValueError(f"{run.health} is damaged: its findings are not as a training writes them. {AGAIN}") from None
