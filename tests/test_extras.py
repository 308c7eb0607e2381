"""What runs with torch and numpy alone, and what a command that needs more says to install."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from rankgrad.common.extras import install, missing

ROOT = Path(__file__).parents[1]

# A fresh process that has none of the extras. It runs an example, and says of each command: exit status, the last line
# of its errors, and what it shows.
WITHOUT = """
import contextlib, io, json, runpy, sys

ABSENT = ("torchvision timm lightning hydra omegaconf yaml sklearn matplotlib tensorboard PIL tqdm scipy jinja2 "
          "pytorch_metric_learning pyarrow optuna torchmetrics lightgbm xgboost jaxtyping pandas").split()

class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import rankgrad.losses, rankgrad.batches.samplers
from rankgrad_workbench.cli import main

runpy.run_path(sys.argv[2], run_name="__main__")
found = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    found.append([code, (err.getvalue().splitlines() or [""])[-1], out.getvalue()])
print(json.dumps(found))
"""

NEEDY = [
    ["train"],
    ["train", "resume=run"],
    ["compare", "loss=pnp"],
    ["tune", "loss=pnp"],
    ["report", "run"],
    ["embed", "run", "."],
    ["index", "e.npz"],
    ["search", "e.png", "--index", "run"],
    ["export", "run"],
    ["datasets", "glyphs"],
]
ENOUGH = [
    ["evaluate", "e.npz", "--bootstrap", "10", "-o", "numbers.json"],
    ["datasets"],
    *([command, "--help"] for command in ("train", "compare", "evaluate", "search")),
]


def test_without_the_extras_losses_and_evaluation_run_and_every_command_says_what_to_install_or_runs(tmp_path):
    embeddings = np.eye(6)[[0, 0, 1, 1, 2, 2]] + 0.1
    np.savez(tmp_path / "e.npz", embeddings=embeddings, labels=[0, 0, 1, 1, 2, 2], names=list("abcdef"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "run" / "model.pt").write_bytes(b"")
    example = ROOT / "examples" / "evaluate_embeddings.py"
    words = [sys.executable, "-c", WITHOUT, json.dumps([*NEEDY, *ENOUGH]), str(example)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for command, (code, told, _) in zip(NEEDY, found, strict=False):
        assert code == 2 and told.startswith("rankgrad: this needs ") and "pip install " in told, (command, told)
    for command, (code, told, _) in zip(ENOUGH, found[len(NEEDY) :], strict=True):
        assert code == 0, (command, told)
    shown = found[len(NEEDY)][2]
    assert "No NMI and AMI: k-means needs scikit-learn" in shown and "R@1" in shown
    assert json.loads((tmp_path / "numbers.json").read_text())["values"]["R@1"] == 1


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
