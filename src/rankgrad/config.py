"""Compose the settings of a run with Hydra, and read those that a run has saved. Errors name what would fit."""

from __future__ import annotations

import inspect
import io
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from . import defaults, plugins
from .checks import closest, integer, unknown
from .files import open_file, shown
from .targets import TARGET, ConfigError, check, make, named, packages
from .tasks import TASKS

T = TypeVar("T")
GROUPS = ("data", "model", "loss", "memory", "recipe", "experiment")
DETECT_GROUPS = ("data", "model", "loss", "experiment")
SCORES_GROUPS = ("data", "model", "loss")
# Root configuration, see `tasks.TaskRow.settings` -> the package that holds it, and its groups.
TREES = {
    "train": ("rankgrad.configs", GROUPS),
    "detect": ("rankgrad.configs.detect", DETECT_GROUPS),
    "scores": ("rankgrad.configs.scores", SCORES_GROUPS),
}
# Values of these settings are paths. They are taken literally, without Hydra's grammar.
PATHS = (
    *("out", "resume", "init", "data.root", "data.cache_dir", "data.load.images"),
    *("model.weights", "model.name"),
)
# Values of these settings are columns or separators of a file. They are taken literally, too.
WORDS = (
    *("data.load.text", "data.load.label", "data.load.super_label", "data.load.split", "data.load.group"),
    *("data.load.path", "data.load.embeddings", "data.load.separator", "data.load.delimiter", "data.load.query"),
)
# Settings that may name a class -> slot of `targets.SLOTS`. No other setting may name one.
PLACES = {
    "train": {
        **{"loss": "loss", "memory": "memory", "data.load": "data"},
        **{"data.train_transform": "transform", "data.eval_transform": "transform"},
    },
    "detect": {"loss": "loss"},
    "scores": {"loss": "loss"},
}
# Settings that every run has, beside those of its root file (train.yaml, detect.yaml).
KEPT = {
    "train": (
        *("data.name", f"data.load.{TARGET}", f"data.train_transform.{TARGET}", f"data.eval_transform.{TARGET}"),
        *("data.workers", "model.kind", f"loss.{TARGET}"),
    ),
    "detect": (
        *("data.name", "data.root", "data.train", "data.test", "data.classes", "data.sides", "data.cache"),
        *("data.workers", "model.kind", "loss.name"),
    ),
    "scores": ("data.name", "data.root", "data.load.label", "data.load.query", "model.kind", f"loss.{TARGET}"),
}
LIBRARY = ("train", "scores")  # trees with the losses of `rankgrad.losses`; detectors have their own losses
PACKAGE = "rankgrad."
GIVEN = "_given"  # name of the model and the data of `rankgrad.fit`; a command line cannot name it
# Common words -> our settings, for hints on unknown settings. A row may need several settings, or an option of a group.
# If a word is in several rows, the hint names the first row that fits the command.
MEANT = {
    "trainer.max_epochs": "epoch epochs max_epochs num_epochs n_epochs",
    "train.batch_size": "batch batch_size batchsize bs",
    "sampler.batch_size": "batch batch_size batchsize bs",
    "sampler.classes_per_batch sampler.samples_per_class": "batch batch_size batchsize bs",
    "sampler.samples_per_class": "m_per_class",
    "optimizer.lr": "learning_rate base_lr",
    "optimizer.weight_decay": "wd",
    "optimizer.name": "optim",
    "optimizer.schedule": "scheduler lr_scheduler lr_schedule",
    "trainer.accelerator": "device",
    "trainer.accelerator=gpu": "gpu cuda",
    "trainer.accelerator=cpu": "cpu",
    "trainer.devices": "devices gpus num_gpus n_gpus ngpu world_size",
    "trainer.precision": "amp bf16 fp16 half mixed_precision precision",
    "threads": "cpus num_threads n_threads",
    "data.workers": "workers num_workers n_workers",
    "data": "dataset dataset_name",
    "data.root": "path root dir folder images input data_dir data_path data_root dataset_dir dataset_path",
    "data=folder data.root": "path root dir folder images input data_dir data_path data_root dataset_dir dataset_path",
    "data.size": "size image_size img_size imgsz input_size resolution",
    "data.load.test_fraction": "test_fraction test_size test_split",
    "out": "output output_dir out_dir outdir save_dir log_dir logdir run_dir",
    "loss": "criterion loss_fn losses objective",
    "loss.margin": "margin",
    "loss.tau": "tau temp temperature",
    "model=timm model.name": "arch architecture backbone model_name network",
    "model.pretrained": "pretrained",
    "model=timm model.pretrained": "pretrained",
    "model.embedding_size": "dim embed_dim embedding_dim emb_dim embedding_size",
    "frozen": "freeze freeze_backbone",
    "evaluation.ks": "k ks topk top_k",
    "evaluation.extra": "metric metrics",
    "seed": "seeds random_seed random_state",
    "loggers": "log logger",
}
INTERNAL = ("derived", "extended", "lean")  # settings that only rankgrad itself sets; no message offers them
SEEDS = 2**32 - 1  # largest seed of numpy
# Settings whose value may be a number, a word or a list.
FREE = ("trainer.devices", "trainer.precision", "sampler.samples_per_class")
_SINGLE = re.compile(r"[A-Za-z_][\w.]*=")  # a plain setting, without Hydra's +added, ~removed and group@place
LARGEST = 2**20  # bytes of a config.yaml; ours have a few thousand
DEEPEST = 50  # nested sections and lists; reading thousands of levels takes minutes


def options(group: str, name: str = "train") -> list[str]:
    """The options of a group of settings, such as data, model or loss.

    >>> options("loss", "detect")
    ['ap', 'cross_entropy', 'rambo', 'smooth_ap', 'supap']
    >>> options("memory")
    ['joint', 'none', 'sum']
    """
    ours: Iterable[str] = ()
    if group == "loss" and name in LIBRARY:
        from .loss_names import LOSSES

        ours = (*LOSSES, *plugins.registered("losses", LOSSES))
    elif (group, name) == ("data", "train"):
        ours = _data_sets()

    def walk(folder: Path, prefix: str) -> Iterator[str]:
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.startswith("_"):
                continue  # files that other files build on
            if entry.name.endswith(".yaml"):
                yield prefix + entry.name.removesuffix(".yaml")
            elif entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")

    return sorted({*ours, *(option for folder in folders(name) for option in walk(folder / group, ""))})


def folders(name: str) -> list[Path]:
    """The folders with the settings files of a root configuration: rankgrad's own, and those of plug-ins."""
    own = Path(str(resources.files(TREES[name][0])))
    inside = "" if name == "train" else name
    return [own, *(folder / inside for folder in plugins.config_folders() if (folder / inside).is_dir())]


def _data_sets() -> dict[str, plugins.Plugin]:
    """Data sets of plug-ins, except for names that rankgrad has itself."""
    own = {file.stem for file in (folders("train")[0] / "data").glob("*.yaml")}
    registered = plugins.registered("datasets", own)
    return {name: plugin for name, plugin in registered.items() if not name.startswith("_")}


def _offer_losses(name: str, words: Sequence[str]) -> None:
    """Register the settings of losses with Hydra: their arguments, and the default losses of data, such as _texts.

    Losses of plug-ins are registered only if they are named. Other plug-ins are not imported.
    """
    from hydra.core.config_store import ConfigStore

    from .losses import LOSSES, settings

    store = ConfigStore.instance()
    store.repo.pop("loss", None)
    named = {value for key, _, value in (word.partition("=") for word in words) if key.lstrip("+").startswith("loss")}
    asked = [loss for loss in plugins.registered("losses", LOSSES) if loss in named]
    for loss in (*LOSSES, *asked) if name in LIBRARY else ():
        store.store(name=loss, node=settings(loss), group="loss", provider="rankgrad")
    for takes, (loss, own) in defaults.LOSSES.items() if name in LIBRARY else ():
        store.store(name=f"_{takes}", node={"defaults": [loss, "_self_"], **own}, group="loss", provider="rankgrad")


def _offer_data(name: str, words: Sequence[str]) -> None:
    """Register a plug-in's data set that is named and has no file. Its settings are the arguments of its loader."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.repo.pop("data", None)
    asked = [word.removeprefix("data=") for word in words if name == "train" and word.startswith("data=")]
    with_file = {file.stem for folder in folders(name) for file in (folder / "data").glob("*.yaml")}
    for data in {*asked} & _data_sets().keys() - with_file:
        load = _data_sets()[data].load()
        signature = inspect.signature(load)
        texts = "TextTable" in str(signature.return_annotation)
        own = {"name": data, "epochs": 10 if texts else 20, "load": _arguments(load, _data_sets()[data].target)}
        # images that are drawn, not read from files, are small, like characters
        images = "_base/photos@_here_" if "root" in signature.parameters else "_base/drawings@_here_"
        base = "_base/texts" if texts else images
        node = {"defaults": [base, "_self_"], **({"data": own} if texts else own)}
        package = "_global_" if texts else None
        store.store(name=data, node=node, group="data", package=package, provider="rankgrad")


def _arguments(load: Callable[..., Any], target: str) -> dict[str, Any]:
    """The settings of a loader: its arguments, without those that _base/photos or _base/texts has."""
    brought = ("root", "shorter_side", "cache", "cache_dir")
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(load).parameters.values() if each.kind not in several]
    own = {each.name: each.default for each in parameters if each.name not in brought}
    needed = inspect.Parameter.empty
    return {TARGET: target, **{name: "???" if default is needed else default for name, default in own.items()}}


def _offer_defaults() -> None:
    """Register the resolvers with which settings files read the table of defaults."""
    if not OmegaConf.has_resolver("default"):
        # the usual 256 before a crop of 224, at any size
        OmegaConf.register_new_resolver("resize_for", lambda size: round(size * 256 / 224))
        OmegaConf.register_new_resolver("default", lambda name: getattr(defaults, name.upper()))
        OmegaConf.register_new_resolver("rate", lambda *, _root_: rate(_root_).lr)
        OmegaConf.register_new_resolver("head_lr_factor", lambda *, _root_: rate(_root_).head_lr_factor)


def rate(config: DictConfig) -> defaults.Rate:
    """The default learning rate for the model of these settings. Their own rate is not read.

    >>> rate(compose(["model=timm", "model.pretrained=true", "optimizer.lr=0.1"])).lr
    1e-05
    """
    model, init = config.model, config.get("init")
    trained = bool(init or model.get("pretrained") or model.get("weights"))
    kind = model.kind if init is None else _kind_of(init, model.kind)
    return defaults.rate_of(kind, config.optimizer.name, trained=trained, frozen=bool(config.get("frozen")))


def _kind_of(init: str, otherwise: str) -> str:
    """The kind of model in a weights file or in a run's folder. If it cannot be read, return `otherwise`."""
    from .models.record import WEIGHTS

    path = Path(init) / WEIGHTS if Path(init).is_dir() else Path(init)
    try:
        return _kind_in(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return otherwise


@lru_cache(maxsize=16)
def _kind_in(path: Path, changed: int) -> str:
    from .models.record import read_record

    return str(read_record(path)["model"]["kind"])


def default_loss(takes: str) -> dict[str, Any]:
    """The settings of the default loss, for a kind of rows in `defaults.LOSSES`."""
    settings: dict[str, Any] = plain(_composed((f"loss=_{takes}",), "train").loss)
    return settings


def compose(overrides: Sequence[str], name: str = "train") -> DictConfig:
    """The configuration `name` (see `TREES`) with overrides such as "loss=pnp" or "optimizer.lr=1e-3".

    Raises:
        ConfigError: a key or an option of a group is unknown (the message names the closest known one), a needed value
            is missing, or a value has the wrong kind.

    >>> compose(["loss=smooth_ap"]).loss.tau
    0.01
    """
    from hydra.errors import HydraException, OverrideParseException

    _offer_defaults()
    for override in overrides:
        if "=" not in override:
            raise ConfigError(
                f"settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got {override!r}"
                + _hint_for_word(override, name)
            )
        key, value = override.split("=", 1)
        if key == "task" and (value not in TASKS or TASKS[value].settings != name):
            others = [f"rankgrad {row.command} trains {task}" for task, row in TASKS.items()]
            raise ConfigError(f"this command cannot train task={value}. Commands: {', '.join(others)}")
        if key == "loss":
            _check_loss_syntax(value, name)
        parts = value.split("+") if key == "loss" and name == "train" else [value]
        for part in parts if key in TREES[name][1] else ():
            internal = part == GIVEN or (key == "loss" and part.removeprefix("_") in defaults.LOSSES)
            if part not in options(key, name) and not internal:
                if key == "data" and _is_data(part, name):
                    raise ConfigError(f"data= takes a kind of data, but {part!r} is a path. Use: {_settings_of(part)}")
                raise ConfigError(unknown(key, part, options(key, name)) + _networks(key, part, name))
        if key in (*PATHS, *WORDS):
            _check_literal(key, value)
    try:
        config = _with_literals(overrides, name)
    except OverrideParseException as error:
        key, _, value = error.override.partition("=")
        raise ConfigError(
            f"{shown(error.override)} cannot be read: signs such as ; {{ ( [ , have a special meaning in a value. "
            f"If they are part of the value, put double quotes around it, and single quotes around the whole setting: "
            + shlex.quote(f'{key}="{value}"')
        ) from None
    except HydraException as error:
        raise ConfigError(_explain(str(error), overrides, name)) from None
    missing = [key for key in keys(config) if _is_missing(config, key)]
    if missing:
        raise ConfigError(f"{', '.join(missing)} must be given; add {missing[0]}=... to the command")
    _check_kinds(config, overrides, name)
    _check_counts(config)
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_line(error)) from None
    _check_names(values, name, packages(config.trust))
    return config


def check_paths(config: DictConfig) -> None:
    """Raise if the data or the weights of a run do not exist. It needs no import of the module that trains.

    Raises:
        FileNotFoundError: naming the setting.
    """
    loader = str(OmegaConf.select(config, f"data.load.{TARGET}") or PACKAGE)
    # the loader of a plug-in may fetch its data
    needed = ("data.root", "init", "model.weights") if loader.startswith(PACKAGE) else ("init", "model.weights")
    for key in needed:
        path = OmegaConf.select(config, key)
        if path is not None and not Path(path).exists():
            where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
            raise FileNotFoundError(f"{key}={path} does not exist{where}")


@lru_cache(maxsize=256)  # comparisons and tables compose the same settings many times
def _composed(overrides: tuple[str, ...], name: str) -> DictConfig:
    """The settings that Hydra composes. They are cached: copy them before you change them.

    Hydra needs a quarter of a second to read the files of the groups. Most calls choose the same files. So the files
    are composed once, and single settings are written into a copy, as Hydra itself does. If a setting does not fit,
    Hydra composes everything and reports the error.
    """
    single = tuple(override for override in overrides if _SINGLE.match(override) and not _groups([override], name))
    if single:
        config = deepcopy(_composed(tuple(override for override in overrides if override not in single), name))
        if _written(config, single):
            return config
    return _by_hydra(overrides, name)


def _written(config: DictConfig, overrides: Sequence[str]) -> bool:
    """Write settings into a configuration. Return False if one does not fit, or if Hydra reads it as a sweep."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        if any(override.is_sweep_override() for override in parsed):
            return False
        for override in parsed:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    except (HydraException, OmegaConfBaseException):
        return False
    return True


def _by_hydra(overrides: Sequence[str], name: str) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module

    words = [word for override in overrides for word in _parts_of_sum(override)]
    _offer_losses(name, words)
    _offer_data(name, words)
    others = [f"file://{folder}" for folder in folders(name)[1:]]
    path = [f"hydra.searchpath=[{','.join(others)}]"] if others else []
    with initialize_config_module(TREES[name][0], version_base="1.3"):
        return hydra_compose(name, overrides=[*words, *path])


def _parts_of_sum(override: str) -> list[str]:
    """Hydra's overrides for loss=A+B: a sum, its parts, and equal weights. Other overrides are returned unchanged."""
    key, value = override.split("=", 1)
    if key != "loss" or "+" not in value:
        return [override]
    losses = value.split("+")
    names = [loss.rpartition("/")[2] for loss in losses]
    if len(set(names)) < len(names):
        raise ConfigError(f"a sum may name each loss only once; got {override}")
    parts = [f"+loss@loss.losses.{name}={loss}" for name, loss in zip(names, losses, strict=True)]
    return ["loss=_sum", *parts, *(f"+loss.weights.{name}={1 / len(names)!r}" for name in names)]


def _groups(overrides: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(override for override in overrides if override.split("=", 1)[0] in TREES[name][1])


def _check_kinds(config: DictConfig, overrides: Sequence[str], name: str) -> None:
    """Raise if a value has another kind than its default. Losses and Lightning check their own settings."""
    given = [override.split("=", 1)[0] for override in overrides]
    own = {*TREES[name][1], *PATHS, *WORDS, *FREE, *(f"data.{kind}_transform.resize" for kind in ("train", "eval"))}
    given = [key for key in given if key not in own and not key.startswith(("loss.", "+", "~"))]
    groups = tuple(group for group in _groups(overrides, name) if not group.startswith("loss="))
    default = _composed(groups, name) if given else config
    for key in given:
        wanted, now = OmegaConf.select(default, key, throw_on_missing=False), OmegaConf.select(config, key)
        _check_kind(key, plain(wanted), plain(now))


def _check_counts(config: DictConfig) -> None:
    """Raise if the seed or the number of workers is out of range. Otherwise they fail after the data is read."""
    try:
        integer(config.seed, "seed chooses the random numbers", low=0, high=SEEDS)
        if "workers" in config.data:
            integer(config.data.workers, "data.workers counts processes that read the data", low=0)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _check_kind(key: str, wanted: Any, given: Any) -> None:
    """Raise unless a value has the kind of the default. null is allowed everywhere except for a section."""
    if isinstance(wanted, dict) and not isinstance(given, dict):
        inner = f", such as {key}.{next(iter(wanted))}" if wanted else ""
        raise ConfigError(f"{key} is a section of settings{inner}; got {given!r}")
    if given is None:
        return
    if isinstance(wanted, (bool, int, float)) and not isinstance(given, (bool, int, float)):
        raise ConfigError(f"{key} is {'true or false' if isinstance(wanted, bool) else 'a number'}; got {given!r}")
    if isinstance(wanted, list) and not isinstance(given, list):
        raise ConfigError(f"{key} is a list such as {key}={str(wanted).replace(' ', '')}; got {given!r}")


def _with_literals(overrides: Sequence[str], name: str) -> DictConfig:
    """Compose the settings, then set the literal values, which Hydra's grammar could misread. Return a copy."""
    literals, others = {}, []
    for override in overrides:
        key, value = override.split("=", 1)
        if key in (*PATHS, *WORDS) and value not in ("", "null") and value[0] not in "'\"":
            # a shell does not expand the ~ of data.root=~/photos
            literals[key] = os.path.expanduser(value) if key in PATHS else value
        else:
            literals.pop(key, None)  # the last value of a key wins
            others.append(override)
    config = deepcopy(_composed(tuple(others), name))
    known = keys(config)
    for key, value in literals.items():
        if key not in known:
            _composed((*others, f"{key}=there"), name)  # Hydra reports the unknown setting
        OmegaConf.update(config, key, value)
    return config


def _is_missing(config: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and OmegaConf.is_missing(node, name)


def keys(config: DictConfig, prefix: str = "") -> list[str]:
    """All settings of a configuration, dotted."""
    names = []
    for key in map(str, config):
        child = config._get_node(key)
        names.append(prefix + key)
        if isinstance(child, DictConfig):
            names += keys(child, f"{prefix}{key}.")
    return names


def _check_literal(key: str, value: str) -> None:
    """Raise if a path or a column is empty, or if it would be read as something else than it says.

    Raises:
        ConfigError: what to write instead.
    """
    if not value:
        raise ConfigError(f"{key}= is empty; give {'a path' if key in PATHS else 'a value'}, or leave it out")
    if "${" in value or value == "???":
        raise ConfigError(f"{key} cannot be {shown(value)!r}: files of settings use ??? and ${{...}}. Rename it")
    if key not in PATHS or not os.path.lexists(value):
        return
    home = os.path.expanduser(value)
    read = "no path" if value == "null" else home if home != value else value[1:-1] if value[0] in "'\"" else ""
    if read:
        raise ConfigError(f"{key}={value} means {read}; for the file or folder of this name, give {key}=./{value}")


def _check_loss_syntax(value: str, name: str) -> None:
    """Raise if settings of a loss are written into its name, or if several losses are named.

    Raises:
        ConfigError: how they are written.
    """
    known = options("loss", name)
    match = re.fullmatch(r"([\w/]+)[:(](.*?)\)?", value)
    if match and match[1] in known:
        own = [word.strip() for word in re.split(r"[+,](?![^\[]*\])", match[2]) if "=" in word]
        apart = " ".join([f"loss={match[1]}", *(word if "." in word.split("=")[0] else f"loss.{word}" for word in own)])
        raise ConfigError(f"the settings of a loss are given after it: {apart}; got loss={value}")
    several = value.split(",")
    if several[1:] and set(several) <= set(known):
        command = "detect compare" if name == "detect" else "compare"
        raise ConfigError(f"a run trains one loss; got loss={value}. To compare: rankgrad {command} loss={value}")


def _networks(key: str, given: str, name: str) -> str:
    """How to name a network of another library, for an unknown model."""
    if (key, name) != ("model", "train") or not given:
        return ""
    word = shlex.quote(f"model.name={given}")
    return f". For a network of timm: model=timm {word}; of sentence-transformers: model=sentence_transformer {word}"


def _hint_for_word(word: str, name: str) -> str:
    """The setting that a word without = may mean."""
    if _is_data(word, name):
        return f". To train on it: {_settings_of(word)}"
    groups = [group for group in TREES[name][1] if word in options(group, name)]
    return f"; did you mean '{groups[0]}={word}'?" if groups else _meant(word, keys(_composed((), name)), name)


def _meant(given: str, known: Sequence[str], name: str) -> str:
    """The settings of `MEANT` that fit, as a hint; "" if there are none."""
    for settings in _rows_of(given):
        parts = [part.partition("=") for part in settings.split()]
        chooses = any(key in TREES[name][1] and option in options(key, name) for key, _, option in parts)
        if chooses or all(key in known for key, *_ in parts):
            return f"; did you mean {' and '.join(map(repr, settings.split()))}?"
    return ""


def _rows_of(given: str) -> list[str]:
    """The rows of `MEANT` with the last name of a setting."""
    word = given.rpartition(".")[2].lower().replace("-", "_")
    return [settings for settings, words in MEANT.items() if word in words.split()]


def _explain(message: str, overrides: Sequence[str], name: str) -> str:
    if match := re.search(r"Ambiguous value for argument '([^=]+)=(.*)'", message):
        key, value = match.groups()
        return (
            f"{key}={value} has several values. A list needs brackets: {key}=[{value}]. To train with several seeds or "
            "losses: rankgrad compare"
        )
    match = re.search(r"Could not override '([^']+)'", message)
    if not match:
        return message.splitlines()[0]
    given = match.group(1)
    of = {key: value for key, _, value in (override.partition("=") for override in overrides)}
    if (
        name == "train"
        and "data.root" in of
        and (given == "data.root" or (given.startswith("data.") and "data" not in of))
    ):
        return f"data.root also needs the kind of the data: {_settings_of(of['data.root'])}"
    if "data.root" in _rows_of(given) and _is_data(of.get(given, ""), name):
        return f"unknown setting {given!r}. To train on it: {_settings_of(of[given])}"
    every = keys(_composed(_groups(overrides, name), name))
    known = [key for key in every if not (key.startswith(INTERNAL) or re.search(r"(^|\.)_", key))]
    parent, _, last = given.rpartition(".")
    same = [key for key in known if key.rpartition(".")[2] == last]  # the section is missing or wrong
    hint = _meant(given, known, name) or (f"; did you mean {same[0]!r}?" if same else "")
    if not hint and not parent and (rows := _rows_of(given)):
        parent, hint = rows[0].rpartition(".")[0], "."  # this loss or data has no such setting; it has others
    beside = [key for key in known if key.rpartition(".")[0] == parent]
    where = f" in {parent}" if parent else ""
    return f"unknown setting {given!r}{hint or closest(given, known)} Known{where}: {', '.join(beside)}"


def _is_data(word: str, name: str) -> bool:
    """Say whether a word is the path of an existing file or folder, given to a command that trains."""
    return name == "train" and os.path.exists(os.path.expanduser(word))


def _settings_of(path: str) -> str:
    """The settings for data at a path, guessed from its suffix.

    >>> _settings_of("my photos")
    "data=folder 'data.root=my photos'"
    >>> _settings_of("x.csv")
    'data=text data.root=x.csv for texts, data=manifest data.root=x.csv for a list of images'
    """
    root = shlex.quote(shown(f"data.root={path}"))
    kinds = {"table": " for embeddings", "text": " for texts", "manifest": " for a list of images"}
    if path.endswith((".csv", ".tsv", ".jsonl")):
        del kinds["table"]
    elif not path.endswith(".parquet"):
        return f"data={'table' if path.endswith('.npz') else 'folder'} {root}"
    return ", ".join(f"data={kind} {root}{what}" for kind, what in kinds.items())


def load(path: Path, trust: Sequence[str] = ()) -> DictConfig:
    """Read the settings of a run. The run may come from somebody else, so only plain values are accepted.

    Args:
        path: config.yaml of a run.
        trust: packages whose classes the settings may name, beside those of `targets.SLOTS`; see `targets.packages`.

    Raises:
        ConfigError: a setting of every run is missing, a value has the wrong kind, a class is not allowed at its
            place, or a value asks for a look-up, such as ${oc.env:HOME}.
        OSError: the file cannot be read.
    """
    try:
        config = parsed(path)
        config.pop("trust", None)  # a file must not say what to trust; only the command may
        values: Any = OmegaConf.to_container(config)
        if values.get("task") not in TASKS:
            raise ConfigError("it has no setting task; the file is damaged, or it is not from a run")
        name = TASKS[values["task"]].settings
        _check_complete(_dotted(values), name)
        _check_names(values, name, trust)
    except (ConfigError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from None
    return config


def parsed(path: Path) -> DictConfig:
    """Read a settings file without tags, resolvers and aliases.

    Such files are refused, because a few lines of aliases can expand to gigabytes.
    """
    size = path.stat().st_size
    if size > LARGEST:
        raise ConfigError(f"this is not a settings file: it has {size} bytes, and a settings file has a few thousand")
    try:
        with open_file(path) as file:
            text = file.read().decode()
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError("it holds a YAML alias (*name), and rankgrad writes none")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ConfigError("it is damaged, or not YAML of plain values: it is nested too deeply")
        config = OmegaConf.load(io.StringIO(text))
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException, ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"it is damaged, or not YAML of plain values: {_first_line(error)}") from None
    if not isinstance(config, DictConfig) or not config:
        raise ConfigError("it holds no settings")
    for key, value in _values(OmegaConf.to_container(config)):
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ConfigError(f"{key} is an integer of more than 64 bits, which is too large")
        if isinstance(value, str) and "${" in value:
            raise ConfigError(f"{key} is {value!r}: settings of a run are plain values, and ${{...}} is not allowed")
    return config


def _values(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of sections and lists, with its dotted name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for row, inner in enumerate(value):
            yield from _values(inner, f"{where}[{row}]")
    else:
        yield where, value


def _check_complete(given: dict[str, Any], name: str) -> None:
    """Raise unless all settings of the root file exist, and each value has the kind of its default."""
    text = (resources.files(TREES[name][0]) / f"{name}.yaml").read_text(encoding="utf-8")
    root = OmegaConf.load(io.StringIO(text))
    _offer_defaults()
    stand_in = OmegaConf.create({"model": {"kind": GIVEN}, "data": {"epochs": 1}})  # values of the file refer to these
    known = _dotted(OmegaConf.to_container(OmegaConf.merge(stand_in, root), resolve=True))
    own = _dotted(OmegaConf.to_container(root, resolve=False))
    needed = [key for key in (*own, *KEPT[name]) if not key.startswith(("defaults", "trust"))]  # trust is never saved
    for key in needed:
        if key in given and key not in FREE:
            _check_kind(key, known.get(key), given[key])
    missing = [key for key in needed if key not in given]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ConfigError(
            f"it lacks {', '.join(missing[:3])}{more}, which every run has; the file is damaged, or not from a run"
        )


def _dotted(values: Any, prefix: str = "") -> dict[str, Any]:
    """All settings, sections included, by their dotted names."""
    dotted: dict[str, Any] = {}
    for key, value in values.items():
        dotted[f"{prefix}{key}"] = value
        if isinstance(value, dict):
            dotted |= _dotted(value, f"{prefix}{key}.")
    return dotted


def _check_names(values: Any, name: str, trust: Sequence[str]) -> None:
    """Raise unless each class that the settings name is allowed at its place."""

    def walk(value: Any, where: str) -> None:
        slot = PLACES[name].get(where)
        if slot is None and isinstance(value, dict) and TARGET not in value:
            for key, inner in value.items():
                walk(inner, f"{where}.{key}" if where else str(key))
        else:
            check(value, slot, trust=trust, where=where)

    walk(values, "")


def _first_line(error: Exception) -> str:
    """The first line of an error, because some libraries write several."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def plain(config: DictConfig | Any) -> Any:
    """A configuration as plain Python values."""
    return OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config


def typed(kind: type[T], settings: Mapping[str, Any]) -> T:
    """Convert plain settings to a frozen dataclass. Lists become tuples, and sections dataclasses, as its fields say.

    Settings without a field are left out.

    Raises:
        ConfigError: a field has no setting.

    >>> from rankgrad.detection.settings import DetectionEvaluation
    >>> typed(DetectionEvaluation, {"ious": [0.5], "inclusive": False, "batch_size": 8, "every": 0, "pictures": 8}).ious
    (0.5,)
    """
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name not in settings:
            raise ConfigError(f"{name} is missing in the settings of {kind.__name__.lower()}")
        value = settings[name]
        if is_dataclass(hint):
            value = typed(cast(type, hint), value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names, in their order. An empty section counts as a value.

    >>> flat({"loss": {"tau": 0.1}, "seed": 0})
    {'loss.tau': 0.1, 'seed': 0}
    """
    dotted: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            dotted |= flat(value, f"{prefix}{key}.")
        else:
            dotted[f"{prefix}{key}"] = value
    return dotted


__all__ = [
    "DETECT_GROUPS",
    "GROUPS",
    "PATHS",
    "TREES",
    "ConfigError",
    "compose",
    "flat",
    "keys",
    "load",
    "make",
    "named",
    "options",
    "packages",
    "parsed",
    "plain",
    "typed",
]
