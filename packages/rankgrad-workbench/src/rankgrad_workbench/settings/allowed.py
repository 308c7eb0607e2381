"""The objects that settings may name with `_target_`: a list for each slot. Nothing else is imported or run.

A slot is a place in the settings: the loss, a transform, the miner inside a loss. The slot of a nested place follows
from its parameter: the value of `pos:` is a step. The lists contain the objects of our own modules. For losses and
their miners, distances, reducers and regularizers they also contain those of pytorch-metric-learning. A loss that is
added to these modules is on the list.

Your own classes are on no list. The user must name their package on the command line; a file cannot do this.
"""

from __future__ import annotations

import importlib
import inspect
import pydoc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from omegaconf import OmegaConf

from rankgrad.common import plugins
from rankgrad.common.checks import closest

from ..files.elsewhere import FROM_CLONE

OURS = ("rankgrad.", "rankgrad_workbench.")
TARGET = "_target_"


class ConfigError(ValueError):
    """A setting does not exist or does not fit. The message is for the user; this is not a programming error."""


@dataclass(frozen=True)
class Offer:
    """Objects of one module that a slot may hold.

    Attributes:
        module: name of the module.
        what: "classes" or "functions": the public ones of the module; the name of a table in it, whose values are
            allowed; or a tuple of names.
    """

    module: str
    what: str | tuple[str, ...] = "classes"

    @property
    def ours(self) -> bool:
        """Whether the module is part of rankgrad; else it is of pytorch-metric-learning, which may be missing."""
        return self.module.startswith(OURS)

    def things(self) -> dict[str, Any]:
        """Name -> class or function. This imports the module."""
        module = importlib.import_module(self.module)
        if isinstance(self.what, tuple):
            return {name: getattr(module, name) for name in self.what}
        if self.what not in ("classes", "functions"):
            return {thing.__name__: thing for thing in getattr(module, self.what).values()}
        fits = inspect.isclass if self.what == "classes" else inspect.isfunction
        inside = self.module.partition(".")[0] + "."  # not names that the module imported from other packages
        return {
            name: thing
            for name, thing in vars(module).items()
            if not name.startswith("_") and fits(thing) and thing.__module__.startswith(inside)
        }

    def load(self, target: str, where: str) -> Callable[..., Any]:
        """Import the class or function of this name, for a place in messages.

        Raises:
            ConfigError: there is none of this name.
        """
        things, name = self.things(), target.rpartition(".")[2]
        if name not in things:
            raise ConfigError(f"{where} is {target!r}: {self.module} has no {name}{closest(name, things)}")
        return things[name]  # type: ignore[no-any-return]


# Slot -> the objects that it may hold.
SLOTS: dict[str, tuple[Offer, ...]] = {
    "loss": (
        Offer("rankgrad.losses"),
        Offer("rankgrad_workbench.training.bi_encoder_losses"),
        Offer("rankgrad.adapters.pml_losses"),
        Offer("rankgrad.losses.baselines"),
        Offer("rankgrad.losses.called"),
        Offer("rankgrad_detection.losses", "DETECTION_LOSSES"),
        Offer("rankgrad.scores.baselines"),
        Offer("pytorch_metric_learning.losses"),
    ),
    "ranks": (Offer("rankgrad.ranks"),),
    "step": (Offer("rankgrad.ranks.relaxations"),),
    "penalty": (Offer("rankgrad.losses.penalties"),),
    "metric": (Offer("rankgrad.metrics", "functions"),),
    "memory": (Offer("rankgrad.batches.memory", ("CrossBatchMemory", "RowMemory")),),
    "data": (
        Offer("rankgrad_workbench.datasets", "DATASETS"),
        Offer("rankgrad_workbench.datasets.given", ("load_given",)),
    ),
    "transform": (Offer("rankgrad_workbench.datasets.transforms"),),
    "miner": (Offer("pytorch_metric_learning.miners"),),
    "distance": (Offer("pytorch_metric_learning.distances"),),
    "reducer": (Offer("pytorch_metric_learning.reducers"),),
    "regularizer": (Offer("pytorch_metric_learning.regularizers"),),
}

# Slot -> the group of plug-ins that it also takes: only the registered objects themselves, with plain values.
PLUGINS = {"loss": "losses", "metric": "metrics", "data": "datasets"}

# Parameter -> its slot, if their names differ.
PARAMETERS = {
    **{"pos": "step", "neg": "step", "weight": "penalty", "variant": "penalty"},
    **{"losses": "loss", "miners": "miner", "reducers": "reducer", "default_reducer": "reducer"},
    **{"embedding_regularizer": "regularizer", "weight_regularizer": "regularizer", "source": "data"},
}

# Parameters whose value is the name of a function; the function itself is passed and not called.
NAMED = ("metric", "source")

# Packages that cannot be trusted: with one of them, a file could run any code.
NOT_OWN = {
    *sys.stdlib_module_names,
    *(each.rstrip(".") for each in OURS),
    *("faiss", "hydra", "lightning", "numpy", "omegaconf", "pytorch_metric_learning", "sklearn", "timm", "torch"),
    *("torchvision", "yaml", "PIL", "pickle5", "pip"),
}


def packages(trust: object) -> tuple[str, ...]:
    """Packages that a user trusts: None, one name, or a list of names.

    Raises:
        ConfigError: a value is not the name of a package, or the package is not the user's own.

    >>> packages("mine.losses")
    ('mine.losses',)
    """
    several = isinstance(trust, Iterable) and not isinstance(trust, str)
    given: list[Any] = [] if trust is None else list(trust) if several else [trust]  # type: ignore[call-overload]
    for name in given:
        if not isinstance(name, str) or not _is_name(name) or name.partition(".")[0] in NOT_OWN:
            raise ConfigError(
                f"trust must be the package of your own classes, such as mypackage; got {name!r}. With those of others "
                "a file could run any code"
            )
    return tuple(given)


def make(node: Any, *, slot: str, trust: Sequence[str] = (), where: str | None = None, **more: Any) -> Any:
    """Make the object that settings with `_target_` describe, including nested objects.

    All names are checked before anything is made.

    Args:
        node: `_target_` and arguments, at any depth: plain values, or a node of a configuration.
        slot: a key of `SLOTS`.
        trust: packages whose classes are also allowed.
        where: the file and the place in it, for messages. None: the slot; then errors of the object itself are not
            changed.
        more: further arguments.

    Raises:
        ConfigError: a name is not allowed in its slot; then nothing was run.
    """
    place = where or slot
    checked = check(_described(node, place), slot, trust=trust, where=place)
    try:
        return _made(checked, **more)
    except (ConfigError, OSError, ImportError):
        raise
    except (ValueError, TypeError) as error:
        if where is None:
            raise
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:  # foreign code may raise any error
        raise ConfigError(f"{place} can't be made: {type(error).__name__}: {error}") from error


def _described(node: Any, place: str) -> dict[str, Any]:
    """Plain values that describe an object."""
    values: Any = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    if not isinstance(values, dict) or TARGET not in values:
        raise ConfigError(f"{place} needs {TARGET}, the name of the class to make")
    return values


def _made(value: Any, **more: Any) -> Any:
    """The object that checked values describe; nested objects are made first."""
    if callable(value):
        return value()
    if isinstance(value, list):
        return [_made(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    made = {name: _made(inner) for name, inner in value.items()}
    return made.pop(TARGET)(**made, **more) if TARGET in made else made


@contextmanager
def section(name: str) -> Iterator[None]:
    """A context in which errors of values name the section of the settings that holds them.

    Raises:
        ConfigError: in place of a ValueError or TypeError.

    >>> with section("model"):
    ...     raise ValueError("widths is empty")
    Traceback (most recent call last):
        ...
    rankgrad_workbench.settings.allowed.ConfigError: model: widths is empty
    """
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name}: {error}") from error


def named(node: Any, *, slot: str, trust: Sequence[str] = (), where: str | None = None) -> Callable[..., Any]:
    """The class or function that settings name with `_target_`. It is imported but not called.

    Raises:
        ConfigError: see `make`.
    """
    place = where or slot
    return find(_described(node, place)[TARGET], slot, trust=trust, where=f"{place}.{TARGET}")


def find(target: Any, slot: str | None, *, trust: Sequence[str] = (), where: str = "") -> Callable[..., Any]:
    """The class or function with a name that is allowed in the slot.

    Raises:
        ConfigError: see `make`.

    >>> find("rankgrad.losses.penalties.Log", "penalty")()
    Log()
    >>> find("os.system", "penalty", where="loss.penalty")
    Traceback (most recent call last):
        ...
    rankgrad_workbench.settings.allowed.ConfigError: loss.penalty is 'os.system', which is no penalty of rankgrad; ...
    """
    return _listed(target, slot, trust, where)()


def check(
    value: Any,
    slot: str | None,
    *,
    trust: Sequence[str] = (),
    where: str = "",
    places: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """These plain values, in which every name that is allowed at its place is a function that imports the object.

    Args:
        value: plain values.
        slot: slot of the outermost `_target_`; None: there must be none; "": any.
        trust: see `make`.
        where: place of the value in messages.
        places: place of a setting -> its own slot.

    Raises:
        ConfigError: a name is not allowed. Only our own modules were imported.
    """
    if isinstance(value, list):
        return [check(inner, slot, trust=trust, where=f"{where}[{row}]") for row, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if TARGET not in value:
        at = {name: f"{where}.{name}" if where else str(name) for name in value}
        return {
            name: check(inner, places.get(at[name], slot), trust=trust, where=at[name], places=places)
            for name, inner in value.items()
        }
    target = value[TARGET]
    checked: dict[str, Any] = {TARGET: _listed(target, slot, trust, f"{where}.{TARGET}")}
    own, foreign = is_own(target, trust), _plugin(target, "")
    for name, inner in value.items():
        place = f"{where}.{name}"
        if name == TARGET:
            continue
        if not isinstance(name, str) or name.startswith("_"):
            raise ConfigError(f"{place}: an argument must not begin with an underscore; nothing was run")
        of_name = PARAMETERS.get(name, name if name in SLOTS else None)
        if own:  # the user's own classes may take any listed object at any parameter
            checked[name] = check(inner, "", trust=trust, where=place)
        elif name in NAMED and isinstance(inner, str):
            checked[name] = _listed(inner, of_name, trust, place)
        else:  # arguments of a plug-in are plain values: no object is made for them
            checked[name] = check(inner, None if foreign else of_name, trust=trust, where=place)
    return checked


def _listed(target: Any, slot: str | None, trust: Sequence[str], where: str) -> Callable[[], Callable[..., Any]]:
    """A function that imports the object with this name, if it is allowed in the slot."""
    if not isinstance(target, str) or not _is_name(target):
        raise ConfigError(f"{where} is {target!r}, which is not the name of a class; nothing was run")
    if is_own(target, trust):
        return partial(_own, target, where)
    if slot is None:
        raise ConfigError(f"{where} is {target!r}, but nothing is made of settings there; nothing was run")
    offers = SLOTS[slot] if slot else [offer for of in SLOTS.values() for offer in of]
    module, _, name = target.rpartition(".")
    for offer in offers:
        if offer.module == (module or offers[0].module) and (not offer.ours or name in offer.things()):
            return partial(offer.load, target, where)
    if plugin := _plugin(target, slot):
        return plugin.load
    told = f"{where} is {target!r}, which is no {slot or 'part'} of rankgrad"
    if target.startswith("rankgrad_papers."):
        raise ConfigError(f"{told}, but of the package of the papers. {FROM_CLONE} Nothing was run")
    if target.startswith((*OURS, "pytorch_metric_learning.")) or "." not in target:
        known = [f"{offer.module}.{name}" for offer in offers if offer.ours for name in offer.things()]
        near = closest(target, known if "." in target else [name.rpartition(".")[2] for name in known])
        raise ConfigError(f"{told}{near} Nothing was run")
    raise ConfigError(
        f"{told}; nothing was run. Only if it is code of your own, name its package: trust=PACKAGE for train, --trust "
        "PACKAGE for other commands"
    )


def _plugin(target: Any, slot: str) -> plugins.Plugin | None:
    """The plug-in of a slot with this name in settings, or, for a metric, with this plain name."""
    for group in PLUGINS.values() if slot == "" else filter(None, [PLUGINS.get(slot)]):
        if found := plugins.by_target(group, target):
            return found
    return plugins.registered("metrics").get(target) if slot in ("", "metric") else None


def _own(target: str, where: str) -> Callable[..., Any]:
    """A class or function that is defined in a trusted package, not only imported there."""
    try:
        value: Any = pydoc.locate(target)
    except pydoc.ErrorDuringImport as error:
        raise ConfigError(f"{where} is {target!r}: {error}") from error
    package = target.partition(".")[0]
    if not callable(value):
        raise ConfigError(f"{where} is {target!r}, which is not a class or function; is {package} on PYTHONPATH?")
    defined = str(getattr(value, "__module__", ""))
    if defined.partition(".")[0] != package:
        raise ConfigError(f"{where} is {target!r}, which is from {defined or 'elsewhere'} and not from {package}")
    return value  # type: ignore[no-any-return]


def is_own(target: Any, trust: Sequence[str]) -> bool:
    """Whether this is the name of an object in a trusted package.

    >>> is_own("mine.MyLoss", ["mine", "other"]), is_own("mine_too.MyLoss", ["mine"])
    (True, False)
    """
    return isinstance(target, str) and target.startswith(tuple(f"{package}." for package in trust))


def _is_name(text: str) -> bool:
    """Whether this is a dotted name without private parts."""
    return all(part.isidentifier() and part[0] != "_" for part in text.split("."))


__all__ = ["NOT_OWN", "SLOTS", "ConfigError", "check", "find", "is_own", "make", "named", "packages", "section"]
