"""What runs with torch and numpy alone, and what a command that needs more says to install."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from rankgrad.common.extras import install, missing

ROOT = Path(__file__).parents[1]

# A fresh process with torch and numpy alone. It runs an example, and prints what is said of all that is not there.
WITHOUT = """
import json, runpy, sys

ABSENT = ("torchvision timm lightning hydra omegaconf yaml sklearn matplotlib tensorboard PIL tqdm scipy jinja2 "
          "filelock pytorch_metric_learning optuna torchmetrics lightgbm xgboost jaxtyping pandas pyarrow "
          "rankgrad_workbench rankgrad_detection").split()

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import rankgrad
import rankgrad.batches.samplers
import rankgrad.losses

runpy.run_path(sys.argv[1], run_name="__main__")
said = {}
for name in ("fit", "fit_search", "fit_scores", "datasets", "trec", "detection"):
    try:
        getattr(rankgrad, name)
    except ModuleNotFoundError as error:
        said[name] = str(error)
try:
    sys.argv = ["rankgrad", "train"]
    runpy.run_module("rankgrad", run_name="__main__", alter_sys=True)
except SystemExit as end:
    said["command"] = end.code
print(json.dumps(said))
"""


def test_without_the_extras_losses_and_evaluation_run_and_what_needs_more_says_what_to_install():
    example = ROOT / "examples" / "evaluate_embeddings.py"
    words = [sys.executable, "-c", WITHOUT, str(example)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "R@1" in done.stdout
    said = json.loads(done.stdout.splitlines()[-1])
    packages = dict.fromkeys(said, "rankgrad-workbench") | {"detection": "rankgrad-detection"}
    assert len(said) == 7
    for name, package in packages.items():
        assert f"this needs {package}: pip install {package}, or in a clone ./packages/{package}" in said[name], name


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'rankgrad[parquet]'"),
        ({"url": "file:///a%20b/rankgrad", "dir_info": {}}, "pip install '/a b/rankgrad[parquet]'"),
        ({"url": "file:///a/r", "dir_info": {"editable": True}}, "pip install -e '/a/r[parquet]'"),
        ({"url": "file:///a/r.whl", "archive_info": {}}, "pip install '/a/r.whl[parquet]'"),
        (
            {"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": "1a"}},
            "pip install 'rankgrad[parquet] @ git+https://h/r.git@1a'",
        ),
    ],
)
def test_the_command_goes_by_where_rankgrad_came_from(monkeypatch, origin, command):
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert install("parquet") == command
    assert missing("pyarrow.parquet") == f"this needs pyarrow, which the extra 'parquet' installs: {command}"


def test_a_checkout_that_is_not_installed_names_its_folder(monkeypatch):
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert install("train") == f"pip install -e '{ROOT}[train]'"
    assert "[train]" in missing("lightning.pytorch") and "[baselines]" in missing("pytorch_metric_learning.losses")
