"""The search space of a loss: settings with the values they may take.

    log(0.002, 0.1)    a number, uniform in its logarithm
    range(0, 1)        a number, uniform
    int(5, 50)         an integer
    times(0.2, 5)      a factor on what the other settings give, uniform in its logarithm
    linear, none       one of these; after a colon an option brings further settings: sum:weight=0.3+size=512 of a
                       group its own, any others by their whole name

The spaces of the losses stand in spaces.yaml.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from optuna.trial import Trial

from ..checks import closest
from ..config import GROUPS, TREES, ConfigError, compose, keys, named, packages, plain
from ..losses.sum import SumLoss, missing_references

Value = float | int | str

_NUMBERS = re.compile(r"(log|range|int|times)\(([^,()]+),([^,()]+)\)")
_COMMA = re.compile(r",(?![^\[(]*[\])])")  # none inside brackets: k=[1,2] is one value
FORMS = "log(LOW,HIGH), range(LOW,HIGH), int(LOW,HIGH), times(LOW,HIGH) or values such as linear,none"


@dataclass(frozen=True)
class NumberRange:
    """A setting that takes a number from an interval.

    Attributes:
        kind: "log", "range", "int" or "times".
        low: smallest.
        high: largest.
    """

    kind: str
    low: float
    high: float

    def suggest(self, name: str, trial: Trial) -> Value:
        """A value of a trial."""
        if self.kind == "int":
            return trial.suggest_int(name, int(self.low), int(self.high))
        return trial.suggest_float(name, self.low, self.high, log=self.kind in ("log", "times"))

    def settings(self, name: str, value: Value, base: DictConfig) -> list[str]:
        """The setting, with a value."""
        if self.kind == "int":
            value = int(value)
        else:
            factor = OmegaConf.select(base, name) if self.kind == "times" else 1.0
            value = float(f"{float(value) * factor:.6g}")  # digits that a person can copy
        return [f"{name}={value!r}"]

    def ends(self) -> tuple[float, ...]:
        """Values that must work if all are to work."""
        return self.low, self.high

    def share(self, value: Value) -> float:
        """Where a value stands between low, 0, and high, 1."""
        scale = math.log if self.kind in ("log", "times") else float
        low, here, high = (scale(number) for number in (self.low, float(value), self.high))
        return (here - low) / (high - low)

    def default(self, name: str, base: DictConfig) -> Value | None:
        """The value that the other settings give; None: the interval does not have it."""
        value = 1.0 if self.kind == "times" else OmegaConf.select(base, name)
        inside = isinstance(value, (int, float)) and self.low <= value <= self.high
        return value if inside else None

    def __str__(self) -> str:
        return f"{self.kind}({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Choice:
    """A setting that takes one of several values.

    Attributes:
        options: as they stand on a command line.
    """

    options: tuple[str, ...]

    def suggest(self, name: str, trial: Trial) -> Value:
        """A value of a trial."""
        option: str = trial.suggest_categorical(name, self.options)
        return option

    def settings(self, name: str, value: Value, base: DictConfig) -> list[str]:
        """The setting with a value, and the settings that the value brings."""
        option, _, own = str(value).partition(":")
        sections = tuple(f"{section!s}." for section in base)
        more = [each if each.startswith(sections) else f"{name}.{each}" for each in own.split("+") if each]
        return [f"{name}={option}", *more]

    def ends(self) -> tuple[str, ...]:
        """Values that must work if all are to work."""
        return self.options

    def share(self, value: Value) -> float:
        """Where a value stands between the last one, 0, and the first, 1."""
        return 1 - self.options.index(str(value)) / max(len(self.options) - 1, 1)

    def default(self, name: str, base: DictConfig) -> Value | None:
        """The first option for a group; else the option that the other settings give, or None."""
        if name in GROUPS:
            return self.options[0]
        now = plain(OmegaConf.select(base, name))
        values = {option: option.partition(":")[0] for option in self.options}
        return next((option for option, value in values.items() if now in (value, yaml.safe_load(value))), None)

    def __str__(self) -> str:
        return ", ".join(self.options)


Values = NumberRange | Choice
Space = Mapping[str, Values]


def read(text: str, where: str) -> Values:
    """The values that a text stands for.

    Args:
        text: see the beginning of this file.
        where: the setting, for messages.

    Raises:
        ConfigError: none of the forms; bounds that are no numbers, in the wrong order, or <= 0 where a logarithm is
            taken.

    >>> read("log(0.002,0.1)", "loss.tau")
    NumberRange(kind='log', low=0.002, high=0.1)
    >>> read("linear, none", "model.head")
    Choice(options=('linear', 'none'))
    """
    text = text.strip()
    match = _NUMBERS.fullmatch(text)
    if match is None:
        if re.match(r"\w*\(|\w+\(", text):
            raise ConfigError(f"space.{where} is {FORMS}; got {text!r}")
        options = tuple(option.strip() for option in _COMMA.split(text))
        if not all(options) or len(set(options)) < len(options):
            raise ConfigError(f"space.{where} names a value twice, or an empty one: {text!r}")
        return Choice(options)
    kind = match[1]
    try:
        low, high = float(match[2]), float(match[3])
        if math.isinf(low) or math.isinf(high):
            raise ValueError
    except ValueError:
        raise ConfigError(f"space.{where}: {kind}(LOW,HIGH) takes two numbers; got {text!r}") from None
    if not low < high:
        raise ConfigError(f"space.{where}: the first bound must be below the second; got {text!r}")
    if kind in ("log", "times") and low <= 0:
        raise ConfigError(f"space.{where}: {kind} needs bounds > 0; got {text!r}")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"space.{where}: int needs whole bounds; got {text!r}")
    return NumberRange(kind, low, high)


@cache
def _listed() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("spaces.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def space_of(
    loss: str, settings: Sequence[str], base: DictConfig, given: Mapping[str, str], tree: str = "train"
) -> Space:
    """The space of a loss: the shared settings, its own, and what the command says; without what the command fixes.

    Args:
        loss: its name, with the settings of a variant or without: only the name counts.
        settings: KEY=VALUE of its runs, the loss among them.
        base: the same, composed.
        given: setting -> values, of the command; they replace those of the table. Those of "loss." concern the losses
            that have the setting.
        tree: of the settings, see `config.TREES`.

    Raises:
        ConfigError: an unknown setting; values that can't be read, or don't fit.
    """
    listed = _listed()
    texts = {**listed["shared"], **_own(loss.partition(":")[0])}
    fixed = {setting.partition("=")[0] for setting in settings} - {"loss"}
    there = {*keys(base), *TREES[tree][1]}
    texts = {name: text for name, text in texts.items() if name in there and name not in fixed}
    if "memory" in texts and not _takes_references(base):
        del texts["memory"]
    for name, text in given.items():
        if name in fixed:
            raise ConfigError(f"{name} is both fixed and searched: give {name}= or space.{name}=, not both")
        if name in there:
            texts[name] = text
        elif not name.startswith("loss."):
            raise ConfigError(f"unknown setting {name!r} in space.{name}{closest(name, sorted(there))}")
    space = {name: read(str(text), name) for name, text in texts.items()}
    for name, values in space.items():
        if isinstance(values, NumberRange):
            now = plain(OmegaConf.select(base, name))
            if values.kind == "times" and (isinstance(now, bool) or not isinstance(now, (int, float))):
                raise ConfigError(f"space.{name}: times is a factor on a number, but {name} is {now!r}")
    _check(space, settings, base, tree)
    return space


def _own(loss: str) -> dict[str, str]:
    """The space of a loss itself. That of a sum: those of its parts, and the weights beside that of the first part."""
    listed = _listed()
    names = loss.split("+")
    if len(names) == 1:
        return dict(listed["losses"].get(loss, {}))
    space: dict[str, str] = {}
    for name in names:
        part = name.rpartition("/")[2]
        if name != names[0]:
            space[f"loss.weights.{part}"] = listed["weight_of_part"]
        for setting, text in listed["losses"].get(name, {}).items():
            space[f"loss.losses.{part}.{setting.removeprefix('loss.')}" if setting.startswith("loss.") else setting] = (
                text
            )
    return space


def _check(space: Space, settings: Sequence[str], base: DictConfig, tree: str) -> None:
    """Raise unless every end of every interval, and every option, is a setting that exists."""
    ends = {name: values.ends() for name, values in space.items()}
    for turn in range(max(map(len, ends.values()), default=0)):
        chosen = {name: each[min(turn, len(each) - 1)] for name, each in ends.items()}
        compose([*settings, *settings_of(space, chosen, base)], tree)


def settings_of(space: Space, chosen: Mapping[str, Value], base: DictConfig) -> list[str]:
    """The settings of a point of the space.

    Args:
        space: of a loss.
        chosen: setting -> value.
        base: the settings that `times` multiplies.
    """
    # groups first: the settings of a group's option are known only once it is chosen
    order = sorted(space, key=lambda name: name not in GROUPS)
    return [word for name in order for word in space[name].settings(name, chosen[name], base)]


def _takes_references(config: DictConfig) -> bool:
    """Whether a loss, or each part of a sum, can be given a memory."""
    trust = packages(config.get("trust"))
    kind = named(config.loss, slot="loss", trust=trust)
    parts = config.loss.losses.values() if kind is SumLoss else [config.loss]
    return not any(missing_references(named(part, slot="loss", trust=trust)) for part in parts)
