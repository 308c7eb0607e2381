"""What an unknown setting or option may mean: by common words of other programs, or by its spelling."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from rankgrad.common.checks import closest
from rankgrad.common.text import shown

from ..files.at_path import check_unpacked, is_beside, is_of_users, is_search, tables_in
from ..files.elsewhere import of_laboratory, unknown
from ..files.tables.formats import FORMATS, SVMLIGHT, of_arrays, of_texts
from .allowed import ConfigError
from .groups import options
from .hydra import composed
from .kinds import of_settings
from .values import keys

# Common words -> our settings, for hints on unknown settings. A row may need several settings, or an option of a group.
# If a word is in several rows, the hint names the first row that fits the command.
MEANT = {
    "trainer.max_epochs": "epoch epochs max_epochs num_epochs n_epochs",
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
    "data=folder": "image_folder imagefolder images photos pictures",
    "data=text": "csv sentences texts",
    "data=table": "embedding embeddings npz parquet vectors",
    "task=search": "beir mteb trec msmarco ms_marco corpus qrels documents passages retrieval",
    "loss=cross_entropy": "ce softmax xent",
    "loss=info_nce": "infonce mnrl nce",
    "loss=pml/ntxent": "nt_xent simclr",
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


def unknown_option(group: str, given: str, name: str) -> str:
    """One line about an unknown option of a group, with the options that fit. An unknown model may be of a library."""
    known, lister = options(group, name), f"rankgrad {of_settings(name).command} --help"
    rows = _rows_of(given)
    meant = [row.partition("=")[2] for row in rows if row.startswith(f"{group}=") and " " not in row]
    told = unknown(group, given, known, lister)
    if group == "loss" and "." in given:
        return (
            f"unknown loss {given!r}. For a class of your own, name its package: loss={given} "
            f"trust={given.partition('.')[0]}; its arguments are settings. docs/plugins.md registers it under a name"
        )
    if group == "data" and name != "search" and "task=search" in rows:
        return (
            f"unknown data {given!r}; did you mean 'task=search' and 'data.root', for queries and documents? "
            f"Known: {told.partition(' Known: ')[2]}"
        )
    if set(meant) & set(known):
        return f"unknown {group} {given!r}; did you mean {meant[0]!r}? Known: {told.partition(' Known: ')[2]}"
    if (group, name) != ("model", "train") or not given:
        return told
    word = shlex.quote(f"model.name={given}")
    return (
        f"{told}. For a network of timm: model=timm {word}; of sentence-transformers: model=sentence_transformer {word}"
    )


def hint_for_word(word: str, name: str) -> str:
    """The setting that a word without = may mean."""
    if is_data(word, name):
        return f". To train on it: {data_settings(word)}"
    groups = [group for group in of_settings(name).groups if word in options(group, name)]
    for group in of_settings(name).groups if not groups else ():
        if hint := of_laboratory(group, word, options(group, name)):
            return hint
    return f"; did you mean '{groups[0]}={word}'?" if groups else _meant(word, keys(composed((), name)), name)


def check_known(overrides: Sequence[str], every: Sequence[str], name: str) -> None:
    """Raise if a setting is unknown, and say what it may mean, and which there are.

    Args:
        overrides: KEY=VALUE.
        every: the known settings.
        name: see `compose`.
    """
    of = {key: value for key, _, value in (override.partition("=") for override in overrides)}
    for key in of:
        if re.match(r"[A-Za-z_]", key) and "@" not in key and key not in (*every, *of_settings(name).groups):
            raise ConfigError(_unknown(key, of, every, name))


def _unknown(given: str, of: Mapping[str, str], every: Sequence[str], name: str) -> str:
    of_data = given.startswith("data.") and "data" not in of
    if name == "train" and "data.root" in of and (given == "data.root" or of_data):
        return f"data.root also needs the kind of the data: {data_settings(of['data.root'])}"
    if "data.root" in _rows_of(given) and is_data(of[given], name):
        return f"unknown setting {given!r}. To train on it: {data_settings(of[given])}"
    known = [key for key in every if not (key.startswith(INTERNAL) or re.search(r"(^|\.)_", key))]
    parent, _, last = given.rpartition(".")
    same = [key for key in known if key.rpartition(".")[2] == last]  # the section is missing or wrong
    hint = _meant(given, known, name) or (f"; did you mean {same[0]!r}?" if same else "")
    if not hint and not parent and (rows := _rows_of(given)):
        parent, hint = rows[0].rpartition(".")[0], "."  # this loss or data has no such setting; it has others
    beside = [key for key in known if key.rpartition(".")[0] == parent]
    where, beside = (f" in {parent}", beside) if beside and parent else ("", [key for key in known if "." not in key])
    return f"unknown setting {given!r}{hint or closest(given, known)} Known{where}: {', '.join(beside)}"


def _meant(given: str, known: Sequence[str], name: str) -> str:
    """The settings of `MEANT` that fit, as a hint; "" if there are none."""
    for settings in _rows_of(given):
        parts = [part.partition("=") for part in settings.split()]
        chooses = any(key in of_settings(name).groups and option in options(key, name) for key, _, option in parts)
        if chooses or all(key in known for key, *_ in parts):
            return f"; did you mean {' and '.join(map(repr, settings.split()))}?"
    return ""


def _rows_of(given: str) -> list[str]:
    """The rows of `MEANT` with the last name of a setting."""
    word = given.rpartition(".")[2].lower().replace("-", "_")
    return [settings for settings, words in MEANT.items() if word in words.split()]


def is_data(word: str, name: str) -> bool:
    """Say whether a word is the path of an existing file or folder, given to a command that trains."""
    return name == "train" and os.path.exists(os.path.expanduser(word))


def data_settings(path: str) -> str:
    """The settings for data at a path, guessed from its suffix; for a folder, from the files in it.

    >>> data_settings("my photos")
    "data=folder 'data.root=my photos'"
    >>> data_settings("x.csv").split(", ")[2:]
    ['task=scores data.root=x.csv for rows with a label', 'task=search data.root=x.csv for queries and documents']
    """
    path = "DIR" if path in ("", "null", "~") else path
    check_unpacked(path)
    if is_beside(path):
        path = os.path.dirname(path) or "."
    root = shlex.quote(shown(f"data.root={path}"))
    if is_search(path):
        return f"task=search {root}"
    if is_of_users(path):
        return "see docs/recommenders.md, since its rows say which user had which item"
    kinds = {"data=table": "embeddings", "data=text": "texts", "data=manifest": "a list of images"}
    kinds |= {"task=scores": "rows with a label", "task=search": "queries and documents"}
    suffix = os.path.splitext(path)[1]
    if FORMATS.get(suffix) is SVMLIGHT:
        return f"task=scores {root}"
    if suffix in of_texts() and suffix not in of_arrays():
        del kinds["data=table"]
    elif suffix not in of_texts():
        files = tables_in(path)
        if {"corpus", "queries"} & {os.path.splitext(file)[0] for file in files}:
            held = ", ".join(map(shown, files))
            return f"task=search {root}, because {shown(path)} holds queries and documents ({held})"
        if files:
            return (
                f"{data_settings(os.path.join(path, files[0]))}. ({shown(path)} holds no images, but tables: "
                f"{', '.join(map(shown, files))})"
            )
        return f"data={'table' if suffix in of_arrays() else 'folder'} {root}"
    return ", ".join(f"{kind} {root} for {what}" for kind, what in kinds.items())
