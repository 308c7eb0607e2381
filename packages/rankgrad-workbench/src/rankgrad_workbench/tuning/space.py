"""The search space of a loss: settings with the values they may take.

    log(0.002, 0.1)    a number, uniform in its logarithm
    range(0, 1)        a number, uniform
    int(5, 50)         an integer
    times(0.2, 5)      a factor on the value of the other settings, uniform in its logarithm
    linear, none       one of these options. An option may have further settings after a colon, such as
                       sum:weight=0.3+size=512: settings of its own group, or others by their full name

spaces.yaml lists the spaces of the losses.
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

from rankgrad.common.checks import closest
from rankgrad.losses.sum import SumLoss, missing_references

from ..settings import GROUPS, ConfigError, compose, keys, named, packages, plain
from ..settings.kinds import of_settings

Value = float | int | str

_NUMBERS = re.compile(r"(log|range|int|times)\(([^,()]+),([^,()]+)\)")
_COMMA = re.compile(r",(?![^\[(]*[\])])")  # a comma outside of brackets: k=[1,2] is one value
FORMS = "log(LOW,HIGH), range(LOW,HIGH), int(LOW,HIGH), times(LOW,HIGH) or values such as linear,none"


@dataclass(frozen=True)
class NumberRange:
    """A setting with numbers from an interval as values.

    Attributes:
        kind: "log", "range", "int" or "times".
        low: smallest value.
        high: largest value.
    """

    kind: str
    low: float
    high: float

    def suggest(self, name: str, trial: Trial) -> Value:
        """Ask Optuna for a value for a trial."""
        if self.kind == "int":
            return trial.suggest_int(name, int(self.low), int(self.high))
        return trial.suggest_float(name, self.low, self.high, log=self.kind in ("log", "times"))

    def settings(self, name: str, value: Value, base: DictConfig) -> list[str]:
        """[NAME=VALUE] of the setting."""
        if self.kind == "int":
            value = int(value)
        else:
            factor = OmegaConf.select(base, name) if self.kind == "times" else 1.0
            value = float(f"{float(value) * factor:.6g}")  # few digits, so that people can copy it
        return [f"{name}={value!r}"]

    def ends(self) -> tuple[float, ...]:
        """Values to check before the search: both ends of the interval."""
        return self.low, self.high

    def default(self, name: str, base: DictConfig) -> Value | None:
        """The value in the other settings; None if it is outside of the interval."""
        value = 1.0 if self.kind == "times" else OmegaConf.select(base, name)
        inside = isinstance(value, (int, float)) and self.low <= value <= self.high
        return value if inside else None

    def __str__(self) -> str:
        return f"{self.kind}({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Choice:
    """A setting with several options as values.

    Attributes:
        options: as written on a command line.
    """

    options: tuple[str, ...]

    def suggest(self, name: str, trial: Trial) -> Value:
        """Ask Optuna for an option for a trial."""
        option: str = trial.suggest_categorical(name, self.options)
        return option

    def settings(self, name: str, value: Value, base: DictConfig) -> list[str]:
        """[NAME=OPTION] of the setting, and the further settings of the option."""
        option, _, own = str(value).partition(":")
        sections = tuple(f"{section!s}." for section in base)
        more = [each if each.startswith(sections) else f"{name}.{each}" for each in own.split("+") if each]
        return [f"{name}={option}", *more]

    def ends(self) -> tuple[str, ...]:
        """Values to check before the search: all options."""
        return self.options

    def default(self, name: str, base: DictConfig) -> Value | None:
        """The first option of a group; else the option in the other settings, or None if it is not an option here."""
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
    """Read the values of a setting from a text.

    Args:
        text: see the docstring of this module.
        where: the setting, for messages.

    Raises:
        ConfigError: the text has another form; or its bounds are not numbers, are in the wrong order, or are <= 0 for a
            logarithm.

    >>> read("log(0.002,0.1)", "loss.tau")
    NumberRange(kind='log', low=0.002, high=0.1)
    >>> read("linear, none", "model.head")
    Choice(options=('linear', 'none'))
    """
    match = _NUMBERS.fullmatch(text.strip())
    if match is None:
        options = tuple(option.strip() for option in _COMMA.split(text))
        if re.match(r"\s*\w*\(", text) or not all(options) or len(set(options)) < len(options):
            raise ConfigError(f"space.{where} must be {FORMS}, none of them empty or repeated; got {text!r}")
        return Choice(options)
    kind = match[1]
    try:
        low, high = float(match[2]), float(match[3])
    except ValueError:
        low = high = math.nan
    positive, whole = kind in ("log", "times"), kind == "int"
    fits = low < high and math.isfinite(high - low) and (low > 0 or not positive)
    if not fits or (whole and not (low.is_integer() and high.is_integer())):
        kinds = f"{'whole ' if whole else ''}numbers{' > 0' if positive else ''}"
        raise ConfigError(f"space.{where}: {kind}(LOW,HIGH) needs two {kinds}, LOW below HIGH; got {text!r}")
    return NumberRange(kind, low, high)


@cache
def _listed() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("spaces.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def space_of(
    loss: str, settings: Sequence[str], base: DictConfig, given: Mapping[str, str], tree: str = "train"
) -> Space:
    """The space of a loss: shared settings, its own settings, and those of the command, without fixed settings.

    Args:
        loss: its name; the settings of a variant after a colon are ignored.
        settings: KEY=VALUE of its runs, including the loss.
        base: the same settings, composed.
        given: setting -> values, from the command. They replace those of spaces.yaml. A setting "loss.NAME" is used
            only for losses that have it.
        tree: of the settings, see `kinds.TaskRow.settings`.

    Raises:
        ConfigError: a setting is unknown; or values cannot be read or do not fit.
    """
    texts = {**_listed()["shared"], **_own(loss.partition(":")[0], tree)}
    fixed = {setting.partition("=")[0] for setting in settings} - {"loss"}
    there = {*keys(base), *of_settings(tree).groups}
    texts = {name: text for name, text in texts.items() if name in there and name not in fixed}
    if not _takes_references(base):
        texts.pop("memory", None)
    for name, text in given.items():
        if name in fixed:
            raise ConfigError(f"{name} is both fixed and searched: give {name}= or space.{name}=, not both")
        if name in there:
            texts[name] = text
        elif not name.startswith("loss."):
            raise ConfigError(f"unknown setting {name!r} in space.{name}{closest(name, sorted(there))}")
    space = {name: read(str(text), name) for name, text in texts.items()}
    for name, values in space.items():
        now = plain(OmegaConf.select(base, name))
        number = isinstance(now, (int, float)) and not isinstance(now, bool)
        if isinstance(values, NumberRange) and values.kind == "times" and not number:
            raise ConfigError(f"space.{name}: times needs a setting that is a number, but {name} is {now!r}")
    _check(space, settings, base, tree)
    return space


def _own(loss: str, tree: str) -> dict[str, str]:
    """The own settings of a loss. For a sum: those of its parts, and the weights of all parts but the first."""
    listed = _listed()
    instead, names = listed.get(tree, {}), loss.split("+")
    space: dict[str, str] = {}
    for name in names:
        part = name.rpartition("/")[2]
        if name != names[0]:
            space[f"loss.weights.{part}"] = listed["weight_of_part"]
        for setting, text in listed["losses"].get(name, {}).items():
            inner = setting.startswith("loss.") and len(names) > 1
            key = f"loss.losses.{part}.{setting.removeprefix('loss.')}" if inner else setting
            space[key] = instead.get(setting, text)
    return space


def _check(space: Space, settings: Sequence[str], base: DictConfig, tree: str) -> None:
    """Raise unless the settings with every end of every interval, and with every option, are valid."""
    ends = {name: values.ends() for name, values in space.items()}
    for turn in range(max(map(len, ends.values()), default=0)):
        chosen = {name: each[min(turn, len(each) - 1)] for name, each in ends.items()}
        compose([*settings, *settings_of(space, chosen, base)], tree)


def settings_of(space: Space, chosen: Mapping[str, Value], base: DictConfig) -> list[str]:
    """The settings of a point of the space.

    Args:
        space: of a loss.
        chosen: setting -> value.
        base: composed settings, whose values `times` multiplies.
    """
    # groups first, because the option of a group decides which settings exist
    order = sorted(space, key=lambda name: name not in GROUPS)
    return [word for name in order for word in space[name].settings(name, chosen[name], base)]


def _takes_references(config: DictConfig) -> bool:
    """Whether a loss, or each part of a sum, can use a memory."""
    trust = packages(config.get("trust"))
    kind = named(config.loss, slot="loss", trust=trust)
    parts = config.loss.losses.values() if kind is SumLoss else [config.loss]
    return not any(missing_references(named(part, slot="loss", trust=trust)) for part in parts)
