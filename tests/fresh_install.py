"""Try an installation of the wheels: `make test-install` makes the environment and runs this in it.

First the library's wheel alone. Nothing of the extras is there. Losses and evaluation work; what needs more says what
to install. It ends with what the package weighs and how long the import of losses and metrics takes, in processor time,
beside torch's own. Then, with --extra NAME, the library with one extra, and what the page of this extra imports. Then,
with --beside, the wheels of the workbench, of detectors and of the laboratory beside it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Extra -> what its page imports.
IMPORTS = {
    "baselines": "from rankgrad.adapters.pml import AccuracyCalculator, CrossBatchMemory, PMLAdapter",
    "torchmetrics": "from rankgrad.adapters.torchmetrics import RetrievalReport",
    "lightgbm": "from rankgrad.adapters.lightgbm import Metrics; import rankgrad.adapters.boosting",
    "xgboost": "from rankgrad.adapters.xgboost import Metrics; import rankgrad.adapters.boosting",
    "sklearn": "from rankgrad.adapters.sklearn import RankClassifier, Ranker, scorer",
    "transformers": "import rankgrad.adapters.transformers",
    "sentence-transformers": "import rankgrad.adapters.sentence_transformers, rankgrad.adapters.cross_encoder",
}
EXTRAS = (
    "torchvision",
    "timm",
    "lightning",
    "hydra",
    "sklearn",
    "scipy",
    "matplotlib",
    "PIL",
    "tqdm",
    "pyarrow",
    "pytest",
)
LABORATORY = ("reproduce", "paper-figure", "sodeep")
IMPORT = """
import time
start = time.process_time(); import torch, numpy; middle = time.process_time()
import rankgrad; from rankgrad import losses, metrics
print(middle - start, time.process_time() - middle, rankgrad.__file__, rankgrad.__version__, sep="\\n")
"""
USE = """
import torch
from rankgrad.evaluation import evaluate
from rankgrad.losses import LOSSES
embeddings = torch.nn.functional.one_hot(torch.arange(4).repeat(2), 8).float().requires_grad_()
for name, kind in LOSSES.items():
    kind()(embeddings, torch.arange(4).repeat(2)).backward()
report = evaluate(embeddings.detach(), torch.arange(4).repeat(2), intervals=10)
assert report.values["R@1"] == 1, report
"""


def run(*words: str, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; it must end with this status."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def main() -> None:
    """Try everything; an AssertionError says what is wrong."""
    if sys.argv[1:2] == ["--extra"]:
        run(sys.executable, "-c", IMPORTS[sys.argv[2]], folder=Path())
    elif sys.argv[1:] == ["--beside"]:
        rankgrad = shutil.which("rankgrad", path=str(Path(sys.executable).parent))
        assert rankgrad, "the command rankgrad is not installed"
        with_others(rankgrad)
    else:
        alone()


def with_others(rankgrad: str) -> None:
    """Try what the packages beside the library add."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = run(rankgrad, "--help", folder=folder).stdout
        assert not [name for name in (*LABORATORY, "detect") if name not in commands.split()], commands
        assert "cub " in run(rankgrad, "datasets", folder=folder).stdout
        run(rankgrad, "train", "experiment=roadmap/cub", "data.root=x", "--cfg", folder=folder)
        run(rankgrad, "detect", "train", "data.root=x", "--cfg", folder=folder)
        run(rankgrad, "detect", "train", "experiment=rambo/voc07_r50", "data.root=x", "--cfg", folder=folder)
        assert "rambo/table2" in run(rankgrad, "reproduce", folder=folder).stdout
        run(rankgrad, "paper-figure", "rambo/fig1", folder=folder)
        assert (folder / "rambo-fig1.png").is_file()


def alone() -> None:
    """Try the library with torch and numpy."""
    assert not [name for name in EXTRAS if importlib.util.find_spec(name)], "this environment has more than the core"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = [run(sys.executable, "-c", IMPORT, folder=folder).stdout.splitlines() for _ in range(5)]
        run(sys.executable, "-c", USE, folder=folder)
        told = run(sys.executable, "-m", "rankgrad", "train", folder=folder, status=1).stderr
        assert "this needs rankgrad-workbench: pip install" in told and "Traceback" not in told, told
    package = Path(times[0][2]).parent
    assert "site-packages" in package.parts, f"this is not the installed package: {package}"
    size = sum(path.stat().st_size for path in package.rglob("*") if path.suffix != ".pyc")
    numbers = {
        "version": times[0][3],
        "python": ".".join(map(str, sys.version_info[:3])),
        "size_mb": round(size / 1e6, 1),
        "import_torch_numpy_seconds": round(min(float(time[0]) for time in times), 2),
        "import_rankgrad_seconds": round(min(float(time[1]) for time in times), 2),
    }
    print(json.dumps(versions() | numbers, indent=1))


def versions() -> dict[str, str]:
    """Versions of what the core needs."""
    from importlib import metadata

    return {name: metadata.version(name) for name in ("torch", "numpy")}


if __name__ == "__main__":
    main()
