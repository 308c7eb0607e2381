"""What to install for a missing package, and for a name of the laboratory or of the package of detectors."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

# Module -> the extra that installs it; for all other modules this is "train".
EXTRAS = {
    "pytorch_metric_learning": "baselines",
    "optuna": "tune",
    "sentence_transformers": "sentence-transformers",
    "datasets": "sentence-transformers",
    "transformers": "transformers",
    "accelerate": "transformers",
    "peft": "lora",
    "torchmetrics": "torchmetrics",
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "pyarrow": "parquet",
    "submitit": "submitit",
    "ray": "ray",
    "bm25s": "documents",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
}

#: Module of a package beside the library -> the package.
BESIDE = {"rankgrad_workbench": "rankgrad-workbench", "rankgrad_detection": "rankgrad-detection"}

#: Kind of a name in messages -> the names that the laboratory adds, the package in the folder papers/ of a clone.
LABORATORY = {
    "command": ("figure", "reproduce", "paper-figure", "sodeep"),
    "data set": (
        *("cub", "cub_cropped", "sop", "inshop", "inaturalist", "vehicleid"),
        *("omniglot", "icons", "drawings", "clinc150", "banking77", "photographs"),
    ),
    "loss": ("sodeep_ap", "sodeep_spearman"),
    "recipe": ("finetune", "finetune_photographs", "pretrain", "pretrain_photographs"),
}
#: The same for the package of detectors, in the folder packages/rankgrad-detection/.
DETECTION = {"command": ("detect",), "task": ("detection",)}
FROM_CLONE = "In a clone: pip install ./papers."
_ADDED = (
    ("the package of the papers", FROM_CLONE, LABORATORY),
    ("the package of detectors", "In a clone: pip install ./packages/rankgrad-detection.", DETECTION),
)
PAPERS = ("rambo", "auc", "pnp", "roadmap")  # its experiments, tables and figures begin with one of these


def of_laboratory(kind: str, given: str, known: Iterable[str] = ()) -> str:
    """The end of a message about an unknown name that the laboratory has, or the package of detectors; "" if none has.

    >>> of_laboratory("data set", "SOP", ["folder", "text"])
    '; sop belongs to the package of the papers. In a clone: pip install ./papers.'
    """
    kind = {"data": "data set"}.get(kind, kind)
    there = {name.partition("/")[0] for name in known} | set(known)
    of_papers = kind in ("experiment", "figure", "table") and given.lower().partition("/")[0] in PAPERS
    for package, how, names in _ADDED:
        close = difflib.get_close_matches(given.lower(), names.get(kind, ()), n=1, cutoff=0.75)
        name, top = (given, given.lower().partition("/")[0]) if of_papers else (close or [""])[:1] * 2
        if name and top not in there:
            return f"; {name} belongs to {package}. {how}"
    return ""


def install(extra: str = "all") -> str:
    """The command that adds an extra to this installation.

    Args:
        extra: an extra of pyproject.toml: train, baselines, parquet or all.
    """
    editable, requirement = _requirement(extra)
    return f"pip install {'-e ' if editable else ''}{shlex.quote(requirement)}"


def missing(module: str) -> str:
    """One line about a module that is not installed."""
    name = module.partition(".")[0]
    if name in BESIDE:
        return f"this needs {BESIDE[name]}: pip install {BESIDE[name]}, or in a clone ./packages/{BESIDE[name]}"
    extra = EXTRAS.get(name, "train")
    return f"this needs {name}, which the extra {extra!r} installs: {install(extra)}"


def _requirement(extra: str) -> tuple[bool, str]:
    """Whether rankgrad is an editable installation, and its requirement: a folder, an address, or a package name."""
    try:
        origin = metadata.distribution("rankgrad").read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # not installed: run from its folder
        return True, f"{Path(__file__).parents[3]}[{extra}]"
    if origin is None:
        return False, f"rankgrad[{extra}]"
    record = json.loads(origin)
    address = str(record["url"])
    if address.startswith("file:"):
        return bool(record.get("dir_info", {}).get("editable")), f"{unquote(urlparse(address).path)}[{extra}]"
    if "vcs_info" in record:
        address = f"{record['vcs_info']['vcs']}+{address}@{record['vcs_info']['commit_id']}"
    return False, f"rankgrad[{extra}] @ {address}"
