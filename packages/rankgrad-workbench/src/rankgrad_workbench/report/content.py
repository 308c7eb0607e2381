"""The content of a page about a run of any kind: settings, curves, metrics, and further sections of its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from markupsafe import Markup

from rankgrad.common.checks import one_of
from rankgrad.common.progress import through

from ..files.tables.formats import of_arrays
from ..runs.folder import Run
from ..runs.history import TEST, curves, evaluations
from ..runs.run_warnings import Finding, remarks_of, warnings_of
from ..settings import differing, flat
from ..settings.kinds import TASKS
from .html.images import Images

Curves = Mapping[str, Sequence[tuple[float, float]]]
Interval = tuple[float, float]
# An evaluation with values, intervals, counts and settings, such as `evaluation.Report`.
Evaluated = Any


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        key: its anchor in the page's address.
        title: its heading.
        body: its content; a section with an empty body is left out.
        data: name -> data for the script of the page.
    """

    key: str
    title: str
    body: Markup
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Extent:
    """How much a page shows of retrieval runs.

    Attributes:
        projection: method of the map: "pca", or "tsne" (needs scikit-learn, seconds per thousand points).
        queries: largest number of queries for histograms, curve, confusions and pictures; if there are more, a random
            sample is used.
        points: largest number of points of the map.
        items: number of items per query.
    """

    projection: str = "pca"
    queries: int = 4000
    points: int = 2000
    items: int = 10

    def __post_init__(self) -> None:
        if min(self.queries, self.points, self.items) < 1:
            raise ValueError(f"queries, points and items must be >= 1; got {self}")
        one_of(self.projection, "projection", ("pca", "tsne"))


@dataclass(frozen=True, eq=False)
class RunContent(ABC):
    """The content of a page about one run. Each kind of run is a subclass, which adds its own content in `sections`.

    Attributes:
        name: name of the run on the page.
        config: its settings, plain and nested.
        facts: steps, seconds, versions.
        curves: name -> (step, value) pairs.
        before: evaluation of the untrained network, or None.
        untouched: of a pretrained network at the size of images at which it is worse, or None.
        after: evaluation of the trained network; None: the run is not finished.
        latest: (steps done, test metrics) of the last evaluation during training, if the run is not finished; or None.
        notes: notes at the top of the page.
        warned: what is wrong with the run; below the notes.
        siblings: the same run with other seeds; their curves are drawn pale behind its own.
        variant: whether the run stands for all seeds of a comparison, which judges no single runs.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    curves: Curves = field(default_factory=dict)
    before: Evaluated = None
    untouched: Evaluated = None
    after: Evaluated = None
    latest: tuple[int, Mapping[str, float]] | None = None
    notes: tuple[str, ...] = ()
    warned: tuple[Finding, ...] = ()
    siblings: tuple[RunContent, ...] = ()
    variant: bool = False

    kind: ClassVar[str]  # a key of `tasks.TASKS`

    @property
    @abstractmethod
    def headline(self) -> tuple[str, ...]:
        """Metrics of the tiles; the first one is the main metric."""

    @property
    @abstractmethod
    def main(self) -> tuple[str, ...]:
        """Metrics of the first table; the others are in a folded table."""

    @classmethod
    @abstractmethod
    def sections(cls, runs: Sequence[Any], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """(sections of this kind of run, notes on them), for runs side by side. Adds pictures to `images`."""

    @property
    def loss(self) -> str:
        """Class name of the loss; of a wrapped loss, the class inside."""
        return loss_name(self.config)

    @property
    def values(self) -> Mapping[str, float]:
        """Metrics of the evaluation after training, or of the last one during training."""
        values: Mapping[str, float] = self.after.values if self.after is not None else (self.latest or (0, {}))[1]
        return values

    @property
    def settings(self) -> dict[str, object]:
        """Settings and facts, by dotted names."""
        settings = flat({key: value for key, value in self.config.items() if key not in ("out", "resume")})
        settings |= {f"run: {key}": value for key, value in flat(self.facts).items()}
        if self.after is not None:
            settings |= {f"evaluation: {key}": value for key, value in flat(self.after.settings).items()}
        return settings


# Wrappers around a loss: of another library, or passed in Python. The page shows the name of the wrapped loss.
SHELLS = ("CalledLoss", "SentenceTransformersBaseline")


def loss_name(config: Mapping[str, Any]) -> str:
    """Class name of the loss in a configuration; its `name` if it has no class; for a sum, the names of its parts.

    >>> adapter = {"_target_": "rankgrad.adapters.pml_losses.PMLLoss", "loss": {"_target_": "pml.losses.TripletLoss"}}
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
    if isinstance(loss.get("loss"), Mapping):
        return loss_name(loss)
    if isinstance(loss.get("losses"), Mapping):
        return " + ".join(map(str, loss["losses"]))
    kind, called = (str(loss.get(key) or "").partition("(")[0].rpartition(".")[2] for key in ("_target_", "name"))
    return called if not kind or kind in SHELLS else kind


def loss_told(loss: Mapping[str, Any]) -> str:
    """Name of the loss, and its settings that differ from the defaults of its class.

    >>> loss_told({"_target_": "rankgrad.losses.SmoothAPLoss", "tau": 0.1, "include_self": False})
    'SmoothAPLoss with tau=0.1'
    """
    own = " ".join(f"{name}={value}" for name, value in differing(loss).items())
    return loss_name({"loss": loss}) + (f" with {own}" if own else "")


def named(value: object) -> str:
    """Name of a part of a configuration: data, model."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("kind") or ""
    return "" if value is None else str(value)


def data_name(config: Mapping[str, Any]) -> str:
    """Name of the data of a run. Files of one's own are called after their folder or file, since all have one kind.

    >>> data_name({"data": {"name": "folder", "root": "photos/birds"}}), data_name({"data": {"name": "glyphs"}})
    ('birds', 'glyphs')
    """
    data = config.get("data")
    own = isinstance(data, Mapping) and data.get("name") in ("folder", "manifest", "text", "table") and data.get("root")
    return Path(str(own)).stem if own else named(data)


# ------------------------------------------------------------------------------------------------------------- reading


def read_runs(
    folders: Sequence[Path], *, pictures: bool = True, trust: Sequence[str] = (), images: Path | None = None
) -> list[RunContent]:
    r"""Read several runs. Runs on the same images share them in memory; each run gets a different name.

    Args:
        folders: of the runs; a file of embeddings (npz, parquet) counts as a retrieval run.
        pictures: False: only metrics and curves.
        trust: packages whose classes their settings may name; see `config.load`.
        images: base folder of the names in a file of embeddings.

    Raises:
        FileNotFoundError: a folder is not a run.
        ValueError: a folder is repeated, or a file of a run is damaged.

    >>> import tempfile
    >>> from omegaconf import OmegaConf
    >>> from rankgrad_workbench.settings import compose
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folders = [Path(folder, f"{loss}-seed0") for loss in ("pnp", "roadmap")]
    ...     for run in folders:
    ...         run.mkdir()
    ...         OmegaConf.save(compose([]), run / "config.yaml", resolve=True)
    ...     print([run.name for run in read_runs(folders)])
    ['pnp', 'roadmap']
    """
    places = [folder.resolve() for folder in folders]
    for place, times in Counter(places).items():
        if times > 1:
            raise ValueError(f"each run may be given once; got {place} more than once")
    known: dict[str, Any] = {}
    contents = []
    for folder in through(list(folders), "reading", "run", len(folders)):
        run, of_file = Run(folder), folder.suffix in of_arrays()
        if not of_file and not run.config.exists():
            raise FileNotFoundError(f"{folder} is not a run: it has no config.yaml. Give the folder of a run")
        reader = import_module(TASKS["retrieval" if of_file else run.kind].reads)
        if of_file:
            contents.append(reader.read_embeddings(folder, images))
        else:
            contents.append(reader.read(run, known=known, pictures=pictures, trust=trust))
    names = short_names([place.with_suffix("") if place.suffix in of_arrays() else place for place in places])
    return [replace(content, name=name) for content, name in zip(contents, names, strict=True)]


def short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that are all different. Words between hyphens that all share at an end are removed.

    >>> short_names([Path("a/x/run"), Path("a/y/run")]), short_names([Path("a/pnp-seed0"), Path("a/auc-seed0")])
    (['x/run', 'y/run'], ['pnp', 'auc'])
    """
    depth = max((len(folder.parts) for folder in folders), default=0)
    ends = (["/".join(folder.parts[-parts:]) for folder in folders] for parts in range(1, depth + 1))
    names = next((each for each in ends if len({*each}) == len(each)), [str(folder) for folder in folders])
    words = [name.split("-") for name in names]
    for end in (0, -1):
        while len(words) > 1 and min(map(len, words)) > 1 and len({each[end] for each in words}) == 1:
            words = [each[1:] if end == 0 else each[:-1] for each in words]
    return list(map("-".join, words))


def read_common(run: Run, after: Evaluated, trust: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments of `RunContent` that runs of all kinds have.

    Args:
        run: the folder.
        after: evaluation of the trained model; None: the run is not finished.
        trust: packages whose classes its settings may name.
    """
    from ..settings import load, plain

    logged = curves(run)
    steps = max((step for points in logged.values() for step, _ in points), default=None)
    tested = evaluations(run) if after is None else {}
    latest = (max(tested), tested[max(tested)]) if tested else None
    if after is None:
        reached = "nothing is logged yet" if steps is None else f"it has logged {steps:.0f} steps"
        shown = f", and the metrics are of the evaluation after {latest[0]:,} steps" if latest else ""
        again = f"rankgrad {TASKS[run.kind].command} resume={run.folder}"
        notes = [f"This run is not finished: {reached}{shown}. Continue it with: {again}"]
    else:
        notes = remarks_of(run, after)
        for name, points in logged.items():  # add the final result to the curves; it is not logged
            if name.startswith(TEST) and (value := after.values.get(name.removeprefix(TEST))) is not None:
                points.append((steps or 0.0, value))
    return {
        "name": run.folder.resolve().name,
        "config": plain(load(run.config, trust)),
        "facts": run.read_facts(),
        "curves": logged,
        "after": after,
        "latest": latest,
        "notes": tuple(notes),
        "warned": tuple(warnings_of(run, after)),
    }


__all__ = ["RunContent", "read_runs"]
