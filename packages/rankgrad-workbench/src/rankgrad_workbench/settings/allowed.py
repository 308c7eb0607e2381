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
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rankgrad.common import plugins
from rankgrad.common.checks import closest, spelled

from ..files.elsewhere import FROM_CLONE
from .spelling import as_keys

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

_LINK = re.compile(r"\$\{([\w.]+)\}")  # a setting that refers to another setting

# Packages that cannot be trusted: with one of them, a file could run any code.
_OTHERS = ("faiss", "hydra", "lightning", "numpy", "omegaconf", "pytorch_metric_learning", "sklearn")
NOT_OWN = {
    *sys.stdlib_module_names,
    *_OTHERS,
    *(each.rstrip(".") for each in OURS),
    "timm",
    "torch",
    "torchvision",
    "yaml",
    "PIL",
    "pickle5",
    "pip",
}


def packages(trust: object) -> tuple[str, ...]:
    """Packages that a user trusts: None, one name, or a list of names.

    Raises:
        ConfigError: a value is not the name of a package, or the package is not the user's own.

    >>> packages("mine.losses")
    ('mine.losses',)
    """
    several = isinstance(trust, Iterable) and not isinstance(trust, str)
    given = [] if trust is None else list(trust) if several else [trust]  # type: ignore[call-overload]
    for name in given:
        if not isinstance(name, str) or not _is_name(name):
            raise ConfigError(f"trust must be the package of your own classes, such as mypackage; got {name!r}")
        if name.partition(".")[0] in NOT_OWN:
            raise ConfigError(
                f"trust must be the package of your own classes; got {name!r}, with which a file could run any code"
            )
    return tuple(given)


def make(node: Any, *, slot: str, trust: Sequence[str] = (), where: str | None = None, **more: Any) -> Any:
    """Make the object that settings with `_target_` describe, including nested objects.

    All names are checked before anything is made.

    Args:
        node: `_target_` and arguments, at any depth: plain values, or a node of a configuration.
        slot: a key of `SLOTS`.
        trust: packages whose classes are also allowed.
        where: the file and the place in it, for messages. None: the place in the configuration; then errors of the
            object itself are not changed.
        more: further arguments.

    Raises:
        ConfigError: a name is not allowed in its slot; then nothing was run.
    """
    values, key = _plain(node)
    place = slot if where is None and not key else where or key
    check(values, slot, trust=trust, where=place)
    if not isinstance(values, dict) or TARGET not in values:
        raise ConfigError(f"{place} needs {TARGET}, the name of the class to make")
    try:
        with spelled(as_keys(key, _followed(node))) if key else nullcontext():
            return _made(values, slot, trust, place, more)
    except ConfigError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        if where is None or isinstance(error, (OSError, ImportError)):
            raise
        raise ConfigError(f"{where}: {error}") from error
    except Exception as error:  # foreign code may raise any error
        raise ConfigError(f"{place} can't be made: {type(error).__name__}: {error}") from error


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
    values, key = _plain(node)
    place = where or key or slot
    if not isinstance(values, dict) or TARGET not in values:
        raise ConfigError(f"{place} needs {TARGET}, the name of the class to make")
    return find(values[TARGET], slot, trust=trust, where=f"{place}.{TARGET}")


def check(node: Any, slot: str | None, *, trust: Sequence[str] = (), where: str = "") -> None:
    """Raise unless every name in these plain values is allowed at its place. Only our own modules are imported.

    Args:
        node: plain values.
        slot: slot of the outermost `_target_`; None: there must be none.
        trust: see `make`.
        where: place of the node in messages.

    Raises:
        ConfigError: see `make`.
    """
    for target, at, place in _names(node, slot, tuple(trust), where):
        _listed(target, at, tuple(trust), place)


def find(target: str, slot: str | None, *, trust: Sequence[str] = (), where: str = "") -> Callable[..., Any]:
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
    offer, name = _listed(target, slot, tuple(trust), where)
    target_class: Callable[..., Any] | None
    if isinstance(offer, plugins.Plugin):
        target_class = offer.load()
        if not callable(target_class):
            raise ConfigError(f"{where} is {target!r}: the {offer} is not a class or function")
    elif offer is None:
        target_class = _own(target, where)
    else:
        things = offer.things()
        target_class = things.get(name)
        if target_class is None:
            raise ConfigError(f"{where} is {target!r}: {offer.module} has no {name}{closest(name, things)}")
    return target_class


def _listed(
    target: Any, slot: str | None, trust: tuple[str, ...], where: str
) -> tuple[Offer | plugins.Plugin | None, str]:
    """The source of a name (None: a trusted package), and the last part of the name."""
    if not isinstance(target, str) or not _is_name(target):
        raise ConfigError(f"{where} is {target!r}, which is not the name of a class; nothing was run")
    if any(target.startswith(f"{package}.") for package in trust):
        return None, target
    if slot is None:
        raise ConfigError(f"{where} is {target!r}, but nothing is made of settings there; nothing was run")
    offers = SLOTS[slot] if slot else [offer for of in SLOTS.values() for offer in of]
    module, _, name = target.rpartition(".")
    for offer in offers:
        if offer.module == (module or offers[0].module) and (not offer.ours or name in offer.things()):
            return offer, name
    plugin = _plugin(target, slot)
    if plugin is not None:
        return plugin, name
    known = [f"{offer.module}.{name}" for offer in offers if offer.ours for name in offer.things()]
    if target.startswith((*OURS, "pytorch_metric_learning.")) or "." not in target:
        names = [name.rpartition(".")[2] for name in known] if "." not in target else known
        hint = closest(target, names)
        raise ConfigError(f"{where} is {target!r}, which is no {slot or 'part'} of rankgrad{hint} Nothing was run")
    here = any(each.target.startswith("rankgrad_papers.") for each in plugins.registered("losses").values())
    if target.startswith("rankgrad_papers.") and not here:
        raise ConfigError(f"{where} is {target!r}, which is in the package of the papers. {FROM_CLONE} Nothing was run")
    raise ConfigError(
        f"{where} is {target!r}, which is no {slot or 'part'} of rankgrad; nothing was run. Only if it is code of your "
        "own, name its package: trust=PACKAGE for train, --trust PACKAGE for other commands"
    )


def _plugin(target: Any, slot: str | None) -> plugins.Plugin | None:
    """The plug-in of a slot with this name in settings, or, for a metric, with this plain name."""
    groups = PLUGINS.values() if slot == "" else [PLUGINS[slot]] if slot in PLUGINS else []
    for group in groups if isinstance(target, str) else ():
        plugin = plugins.by_target(group, target)
        if plugin is None and group == "metrics":
            plugin = plugins.registered(group).get(target)
        if plugin is not None:
            return plugin
    return None


def _own(target: str, where: str) -> Callable[..., Any]:
    """A class or function that is defined in a trusted package, not only imported there."""
    parts = target.split(".")
    value: Any = None
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            if end == 1:
                raise ConfigError(
                    f"{where} is {target!r}, but there is no module {module}: install it, or add its folder to "
                    "PYTHONPATH"
                ) from None
            continue
        for name in parts[end:]:
            value = getattr(value, name, None)
        break
    if not callable(value):
        raise ConfigError(f"{where} is {target!r}, which is not a class or function")
    defined = str(getattr(value, "__module__", ""))
    if defined.partition(".")[0] != parts[0]:
        raise ConfigError(f"{where} is {target!r}, which is from {defined or 'elsewhere'} and not from {parts[0]}")
    return value  # type: ignore[no-any-return]


def _made(value: Any, slot: str | None, trust: Sequence[str], where: str, more: Mapping[str, Any]) -> Any:
    """The object that values describe; nested objects are made first."""
    if isinstance(value, list):
        return [_made(inner, slot, trust, f"{where}[{row}]", {}) for row, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if TARGET not in value:
        return {name: _made(inner, slot, trust, f"{where}.{name}", {}) for name, inner in value.items()}
    arguments: dict[str, Any] = {}
    for name, inner, inner_slot in _arguments(value, trust):
        place = f"{where}.{name}"
        named_only = _as_name(name, inner, value, trust)
        if named_only is None:
            arguments[name] = _made(inner, inner_slot, trust, place, {})
        else:
            arguments[name] = find(named_only, inner_slot, trust=trust, where=place)
    return find(value[TARGET], slot, trust=trust, where=f"{where}.{TARGET}")(**arguments, **more)


def _names(value: Any, slot: str | None, trust: tuple[str, ...], where: str) -> Iterator[tuple[Any, str | None, str]]:
    """Every name with its slot and its place."""
    if isinstance(value, list):
        for row, inner in enumerate(value):
            yield from _names(inner, slot, trust, f"{where}[{row}]")
    elif isinstance(value, dict) and TARGET not in value:
        for name, inner in value.items():
            yield from _names(inner, slot, trust, f"{where}.{name}" if where else str(name))
    elif isinstance(value, dict):
        yield value[TARGET], slot, f"{where}.{TARGET}"
        for name, inner, inner_slot in _arguments(value, trust):
            place = f"{where}.{name}"
            if not isinstance(name, str) or name.startswith("_"):
                raise ConfigError(f"{place}: an argument must not begin with an underscore; nothing was run")
            named_only = _as_name(name, inner, value, trust)
            if named_only is None:
                yield from _names(inner, inner_slot, trust, place)
            else:
                yield named_only, inner_slot, place


def _arguments(node: dict[Any, Any], trust: Sequence[str]) -> Iterator[tuple[Any, Any, str | None]]:
    """Name, value and slot of each argument. The user's own classes may take any listed object at any parameter."""
    own, foreign = _is_own(node[TARGET], trust), _plugin(node[TARGET], "")
    for name, value in node.items():
        if name != TARGET:
            slot = PARAMETERS.get(name, name if name in SLOTS else None)
            # arguments of a plug-in are plain values: no object is made for them, but a function may be named
            yield name, value, "" if own else None if foreign and not isinstance(value, str) else slot


def _as_name(name: str, value: Any, node: Mapping[Any, Any], trust: Sequence[str]) -> str | None:
    """The name of a function that is passed without being called; None: the argument is something else."""
    if name not in NAMED or _is_own(node[TARGET], trust):
        return None
    return value if isinstance(value, str) else None


def _is_own(target: Any, trust: Sequence[str]) -> bool:
    return isinstance(target, str) and any(target.startswith(f"{package}.") for package in trust)


def _is_name(text: str) -> bool:
    """Whether this is a dotted name without private parts."""
    return all(part.isidentifier() and not part.startswith("_") for part in text.split("."))


def _plain(node: Any) -> tuple[Any, str]:
    """Plain values of a node, and its place if it is part of a configuration."""
    if type(node) in (dict, list):
        return node, ""
    from omegaconf import OmegaConf

    if not OmegaConf.is_config(node):
        return node, ""
    return OmegaConf.to_container(node, resolve=True), str(node._get_full_key(None) or "")


def _followed(node: Any) -> dict[str, str]:
    """Argument -> the setting that it refers to: for root: ${data.root} this is data.root."""
    from omegaconf import OmegaConf

    raw: Any = OmegaConf.to_container(node, resolve=False)
    links = ((name, _LINK.fullmatch(str(value))) for name, value in raw.items())
    return {name: link[1] for name, link in links if link}


__all__ = ["NOT_OWN", "SLOTS", "ConfigError", "check", "find", "make", "named", "packages", "section"]
