"""What to install for a missing package."""

from __future__ import annotations

import json
import shlex
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
    "Stemmer": "documents",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
}

#: Module of a package beside the library -> the package.
BESIDE = {"rankgrad_workbench": "rankgrad-workbench", "rankgrad_detection": "rankgrad-detection"}


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
