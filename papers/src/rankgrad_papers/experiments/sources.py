"""The source of each setting of an experiment: a place in a paper, its published code, or our own choice.

Sources are written in three files:

* the YAML file of an experiment: in brackets at the start of the line's comment: `lr: 5.0e-6  # [rambo table 9]`;
* the YAML file of a table: under `sources`, one line for each setting in which its cells differ;
* `sources.yaml`: defaults that experiments use, of losses, data sets, models and training.

A source is `[PAPER PLACE]`, where the place is a section, table, figure or heading of the paper (`places` in
sources.yaml), `[code]` (the code that the authors published) or `[ours]` (neither gives it). With two sources in a row,
the first one gives the method and the second one the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

import yaml
from omegaconf import OmegaConf

from rankgrad.common.checks import closest
from rankgrad.common.text import aligned
from rankgrad.losses import LOSSES
from rankgrad.losses import settings as loss_settings
from rankgrad_workbench.settings import ConfigError, compose, flat, options

from .grid import Grid, grids

WITHOUT_PLACE = ("code", "ours")
_BRACKETS = re.compile(r"\s*\[([^\]]+)\]")


@dataclass(frozen=True)
class Source:
    """The source of a value.

    Attributes:
        places: such as "rambo table 9", "code", "ours".
        words: further explanation.
    """

    places: tuple[str, ...]
    words: str = ""

    def __str__(self) -> str:
        """Places and words."""
        return "; ".join(part for part in (", ".join(self.places), self.words) if part)


@dataclass(frozen=True)
class Setting:
    """A setting of an experiment or of a table.

    Attributes:
        key: dotted name; for a table also rule and seeds.
        value: its value; for a table its values in all cells.
        source: its source; None: unknown.
    """

    key: str
    value: str
    source: Source | None


def parsed(text: str, where: str) -> Source | None:
    """The source at the beginning of a comment; None if it has none.

    Raises:
        ConfigError: the paper or the place does not exist.

    >>> str(parsed("[rambo A] [code] their factor", "a file"))
    'rambo A, code; their factor'
    """
    known, found, rest = places(), list[str](), text
    while match := _BRACKETS.match(rest):
        place, rest = match[1], rest[match.end() :]
        paper, _, inside = place.partition(" ")
        if place not in WITHOUT_PLACE and inside not in known.get(paper, ()):
            hint = closest(inside, known[paper]) if paper in known else "."
            raise ConfigError(f"{where}: there is no place [{place}]{hint} Known: [code], [ours], [PAPER PLACE]")
        found.append(place)
    return Source(tuple(found), rest.strip()) if found else None


def of_experiment(name: str, tree: str = "train") -> tuple[Setting, ...]:
    """All settings of an experiment on which its numbers depend, with their sources.

    Args:
        name: such as rambo/cub_log.
        tree: train or detect.
    """
    written, config = _written(name, tree), flat(OmegaConf.to_container(_composed(name, tree), resolve=True))  # type: ignore[arg-type]
    settings = []
    for group in ("data", "model", "loss", "memory"):
        if group in written:
            settings.append(Setting(group, written[group][0], written[group][1]))
    for key, value in config.items():
        if not any(fnmatchcase(key, pattern) for pattern in _file()["apart"]):
            source = written[key][1] if key in written else inherited(key, name, _option(written, "loss"))
            settings.append(Setting(key, _shown(value), source))
    return tuple(settings)


@cache
def _composed(name: str, tree: str) -> Any:
    return compose([f"experiment={name}", "data.root=DIR"], tree)


def _option(written: Mapping[str, tuple[str, Source | None]], group: str) -> str:
    return written[group][0] if group in written else ""


def of_table(grid: Grid) -> tuple[Setting, ...]:
    """What the cells of a table set, its rule and its seeds."""
    values: dict[str, dict[str, None]] = {"rule": {grid.rule: None}, "seeds": {_shown(list(grid.seeds)): None}}
    for setting in _settings(grid):
        key, _, value = setting.partition("=")
        values.setdefault(key.lstrip("+"), {})[value] = None
    where = f"{grid.id}, sources"
    sources = {key: parsed(text, where) for key, text in grid.sources.items()}
    return tuple(Setting(key, " | ".join(values_given), sources.get(key)) for key, values_given in values.items())


def _settings(grid: Grid) -> Iterator[str]:
    for cell in grid.cells:
        yield from (*cell.settings, *cell.full_only, *cell.test)


def of_loss(name: str, tree: str = "train") -> tuple[Setting, ...]:
    """The defaults of a loss."""
    if tree == "train" and name in LOSSES:
        values = loss_settings(name)
    else:
        overrides = [f"loss={name}", *(["data.root=DIR"] if tree == "detect" else [])]
        values = OmegaConf.to_container(compose(overrides, tree).loss, resolve=True)  # type: ignore[assignment]
    return tuple(
        Setting(f"loss.{key}", _shown(value), inherited(f"loss.{key}", "", name))
        for key, value in flat(values).items()
        if not key.endswith("_target_") and key not in ("name", "seed")
    )


def inherited(key: str, experiment: str, loss: str) -> Source | None:
    """The source of a setting that an experiment takes over from the defaults.

    Args:
        key: dotted.
        experiment: whose it is; "" for a table's loss.
        loss: option of the group `loss`.
    """
    file = _file()
    if key.startswith("loss."):
        text = file["losses"].get(loss, {}).get(key.removeprefix("loss."))
        text = file["losses"]["*"].get(key.removeprefix("loss.")) if text is None else text
        return None if text is None else parsed(text, "sources.yaml")
    for section in (experiment, experiment.partition("/")[0], "*"):
        for pattern, text in file["defaults"].get(section, {}).items():
            if fnmatchcase(key, pattern):
                return parsed(text, "sources.yaml")
    return None


def places() -> Mapping[str, Sequence[str]]:
    """Paper -> its sections, tables, figures and headings."""
    return {paper: text.split("; ") for paper, text in _file()["places"].items()}


@cache
def _file() -> Any:
    return yaml.safe_load(resources.files(__package__).joinpath("sources.yaml").read_text(encoding="utf-8"))


@cache
def _written(name: str, tree: str) -> Mapping[str, tuple[str, Source | None]]:
    """Setting -> (value, source) in an experiment's file and the files that it includes; the last one wins."""
    folder = resources.files("rankgrad_papers") / "configs" / ("" if tree == "train" else tree)
    text = (folder / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    lines, where = text.splitlines(), f"experiment/{name}.yaml"

    def source(node: yaml.Node) -> Source | None:
        return parsed(lines[node.start_mark.line].partition(" #")[2], where)

    def leaves(node: yaml.MappingNode, prefix: str) -> Iterator[tuple[str, tuple[str, Source | None]]]:
        for key, value in node.value:
            if isinstance(value, yaml.MappingNode):
                yield from leaves(value, f"{prefix}{key.value}.")
            elif f"{prefix}{key.value}" != "defaults":
                yield f"{prefix}{key.value}", (text[value.start_mark.index : value.end_mark.index], source(key))

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    defaults = next((value for key, value in root.value if key.value == "defaults"), None)
    written: dict[str, tuple[str, Source | None]] = {} if defaults is not None else dict(leaves(root, ""))
    for node in defaults.value if defaults is not None else ():
        if isinstance(node, yaml.MappingNode):
            [(key, value)] = node.value
            written[key.value.removeprefix("override /")] = (value.value, source(key))
        elif node.value == "_self_":
            written |= dict(leaves(root, ""))
        else:
            written |= _written(node.value.removeprefix("/experiment/"), tree)
    return written


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def experiments(tree: str = "train") -> list[str]:
    """List the experiments of the papers."""
    return [name for name in options("experiment", tree) if name.partition("/")[0] in places()]


def losses_of(grid: Grid) -> list[str]:
    """The losses in the cells of a table."""
    named = [setting.removeprefix("loss=") for setting in _settings(grid) if setting.startswith("loss=")]
    return list(dict.fromkeys(named))


def text(grid: Grid) -> str:
    """The source of every setting of a table, as text."""
    parts = [(f"{grid.id}: {grid.title}", of_table(grid))]
    parts += [
        (f"experiment={name}", of_experiment(name, grid.tree))
        for name in dict.fromkeys(cell.experiment for cell in grid.cells)
    ]
    parts += [(f"loss={name}", of_loss(name, grid.tree)) for name in losses_of(grid)]
    blocks = [
        f"{head}\n{aligned([(f'  {s.key}', s.value, str(s.source)) for s in settings], left=3)}"
        for head, settings in parts
        if settings
    ]
    return "\n\n".join([*blocks, LEGEND])


LEGEND = (
    "A source is a place in a paper (rambo, auc, pnp or roadmap, and a section, heading, table or figure of it), code: "
    "what its authors published beside it, or ours: neither says it."
)


def page() -> str:
    """All experiments and tables, as the page of sources. A setting of several experiments is listed once."""
    parts = []
    for paper in places():
        names = [
            (name, tree) for tree in ("train", "detect") for name in experiments(tree) if name.startswith(f"{paper}/")
        ]
        rows: dict[tuple[str, str, str], list[str]] = {}
        for name, tree in names:
            for each in of_experiment(name, tree):
                rows.setdefault((each.key, each.value, str(each.source)), []).append(name.partition("/")[2])
        count = {tree: sum(of == tree for _, of in names) for tree in ("train", "detect")}
        lines = [
            (key, value, source, "all" if len(users) in count.values() and len(users) > 1 else ", ".join(users))
            for (key, value, source), users in sorted(rows.items())
        ]
        parts += [f"## {paper}: experiments", _rows([("setting", "value", "source", "of"), *lines])]
        tables = [
            grid for command in ("train", "detect train") for grid in grids(command).values() if grid.paper == paper
        ]
        shared: dict[tuple[str, str, str], list[str]] = {}
        for grid in tables:
            for each in of_table(grid):
                shared.setdefault((each.key, each.value, str(each.source)), []).append(grid.id.partition("/")[2])
        lines = [(key, value, source, ", ".join(users)) for (key, value, source), users in sorted(shared.items())]
        parts += [f"## {paper}: tables and figures", _rows([("setting", "values", "source", "of"), *lines])]
    used = {
        (name, grid.tree): None
        for command in ("train", "detect train")
        for grid in grids(command).values()
        for name in losses_of(grid)
    }
    lines = [(name, s.key, s.value, str(s.source)) for name, tree in used for s in of_loss(name, tree)]
    parts += ["## Losses", _rows([("loss", "setting", "default", "source"), *lines])]
    return "\n\n".join(parts) + "\n"


def _rows(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table without padding, which would make this table four times as long."""
    text = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join([text[0], "|---" * len(rows[0]) + "|", *text[1:]])
