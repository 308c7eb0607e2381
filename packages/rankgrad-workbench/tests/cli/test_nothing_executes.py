"""Files of somebody else: no command runs code from what it reads, and each says in one line what it refuses."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import Touch, changed, fuzz, refused, system_call
from kept_runs import copied, kept_index
from small_runs import make_photos, small
from small_tables import one_list

from rankgrad_workbench.cli import main
from rankgrad_workbench.index import Index
from rankgrad_workbench.runs.compare import train_all


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that only code from a foreign file would make."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


@pytest.fixture
def pickled(tmp_path: Path, canary: Path) -> Path:
    """A file of torch.save that touches the canary if it is unpickled."""
    torch.save({"state_dict": Touch(canary)}, tmp_path / "evil.pt")
    return tmp_path / "evil.pt"


def received(name: str, folder: Path, photos: Path) -> Path:
    """A run as it came from somebody else, whose images are here."""
    return copied(name, folder, photos)


# ------------------------------------------------------------------------------------------------------ bad settings


def _load(canary: Path) -> dict[str, Any]:
    return {"_target_": "torch.load", "f": str(canary.with_name("evil.pt")), "weights_only": False}


def _eval(canary: Path) -> dict[str, Any]:
    return {"_target_": "builtins.eval", "source": f"open({str(canary)!r}, 'w')"}


# What is changed in the settings -> what is said of it.
SETTINGS: dict[str, tuple[Callable[[dict[str, Any], Path], object], str]] = {
    "transform": (
        lambda c, canary: c["data"].update(eval_transform=system_call(canary)),
        "data.eval_transform._target_ is 'os.system', which is no transform of rankgrad; nothing was run",
    ),
    "inside a transform": (
        lambda c, canary: c["data"]["eval_transform"].update(mean=_load(canary)),
        "data.eval_transform.mean._target_ is 'torch.load', but nothing is made of settings there; nothing was run",
    ),
    "penalty": (
        lambda c, canary: c["loss"].update(penalty=_eval(canary)),
        "loss.penalty._target_ is 'builtins.eval', which is no penalty of rankgrad; nothing was run",
    ),
    "step": (
        lambda c, canary: c["loss"]["ranks"].update(neg=system_call(canary)),
        "loss.ranks.neg._target_ is 'os.system', which is no step of rankgrad; nothing was run",
    ),
    "list": (
        lambda c, canary: c["data"]["train_transform"].update(scale=[0.1, system_call(canary)]),
        "data.train_transform.scale[1]._target_ is 'os.system', but nothing is made of settings there",
    ),
    "data": (
        lambda c, canary: c["data"].update(load={"_target_": "numpy.load", "file": "x", "allow_pickle": True}),
        "data.load._target_ is 'numpy.load', which is no data of rankgrad; nothing was run",
    ),
    "memory": (
        lambda c, canary: c["memory"].update(system_call(canary)),
        "memory._target_ is 'os.system', which is no memory of rankgrad; nothing was run",
    ),
    "elsewhere": (
        lambda c, canary: c["optimizer"].update(system_call(canary)),
        "optimizer._target_ is 'os.system', but nothing is made of settings there; nothing was run",
    ),
    "metric": (
        lambda c, canary: c["loss"].update(metric="os.system"),
        "loss.metric is 'os.system', which is no metric of rankgrad; nothing was run",
    ),
    "partial": (
        lambda c, canary: c["loss"].update(_partial_=True),
        "loss._partial_: an argument must not begin with an underscore; nothing was run",
    ),
    "environment": (
        lambda c, canary: c["data"].update(name="${oc.env:HOME}"),
        "data.name is '${oc.env:HOME}': settings of a run are plain values",
    ),
    "trust in the file": (
        lambda c, canary: c.update(trust="os", memory=system_call(canary)),
        "memory._target_ is 'os.system', which is no memory of rankgrad; nothing was run",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_would_run_something_are_refused_by_every_command(
    capsys, tmp_path, photos, pickled, canary, name
):
    change, message = SETTINGS[name]
    run = changed(received("retrieval", tmp_path / "run", photos), lambda config: change(config, canary))
    page = tmp_path / "page.html"
    for words in (
        ["train", f"resume={run}"],
        ["report", run, "-o", page],
    ):
        told = refused(capsys, *words)
        assert f"{run / 'config.yaml'}: {message}" in told
    assert main(["evaluate", str(run), "--bootstrap", "0"]) == 0  # reads numbers, and no settings
    assert not page.exists()


def test_an_interrupted_run_that_would_run_something_is_not_resumed(capsys, tmp_path, photos, canary):
    run = received("interrupted", tmp_path / "run", photos)
    before = (run / "state.ckpt").read_bytes()
    changed(run, lambda config: config["loss"].update(system_call(canary)))
    assert "loss._target_ is 'os.system'" in refused(capsys, "train", f"resume={run}")
    assert (run / "state.ckpt").read_bytes() == before


@pytest.mark.slow
def test_a_comparison_does_not_go_on_with_a_run_that_would_run_something(tmp_path, photos, canary):
    run = received("interrupted", tmp_path / "run", photos)
    changed(run, lambda config: config["loss"].update(system_call(canary)))
    (error,) = train_all({run: ["loss=roadmap"]}, run.parent, jobs=1).values()
    assert "loss._target_ is 'os.system', which is no loss of rankgrad; nothing was run" in error
    assert "(exit 2; see" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object/apply:os.system ['touch CANARY']", "could not determine a constructor for the tag"),
        ("a: !!python/object/new:os.system ['touch CANARY']", "could not determine a constructor for the tag"),
        ("a: &a [x, x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]", "it holds a YAML alias"),
    ],
)
def test_yaml_of_objects_is_refused(capsys, tmp_path, canary, text, message):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(text.replace("CANARY", str(canary)))
    for words in (["train", f"resume={tmp_path / 'run'}"], ["report", tmp_path / "run"]):
        assert message in refused(capsys, *words)


def test_the_settings_of_a_run_of_scores_are_refused_alike(capsys, tmp_path, canary):
    rows = one_list(tmp_path / "rows.csv")
    run = copied("scores", tmp_path / "run", rows=rows)
    changed(run, lambda config: config["loss"].update(system_call(canary)))
    for words in (
        ["train", f"resume={run}"],
        ["report", run, "-o", tmp_path / "page.html"],
        ["evaluate", run, "--root", rows],
    ):
        assert "loss._target_ is 'os.system', which is no loss of rankgrad" in refused(capsys, *words)
    assert main(["evaluate", str(run), "--bootstrap", "0"]) == 0  # reads numbers, and no settings
    assert main(["predict", str(run), str(rows), "-o", str(tmp_path / "scores.csv")]) == 0  # reads the model alone


def test_settings_that_are_typed_are_held_to_the_same_lists(capsys, tmp_path, canary):
    told = refused(capsys, "train", "loss._target_=os.system", f"+loss.command=touch {canary}", "--cfg")
    assert "loss._target_ is 'os.system', which is no loss of rankgrad" in told
    told = refused(capsys, "train", "loss._target_=os.system", "trust=os")
    assert "got 'os'. With those of others a file could run any code" in told


# ------------------------------------------------------------------------------------------------------- bad weights


def with_data(weights: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Weights that say something else about their images."""
    record = torch.load(weights, weights_only=True)
    change(record)
    torch.save(record, weights)
    return weights


WEIGHTS: dict[str, tuple[Callable[[dict[str, Any], Path], object], str]] = {
    "transform": (
        lambda r, canary: r["config"]["data"].update(eval_transform=system_call(canary)),
        "data.eval_transform._target_ is 'os.system', which is no transform of rankgrad; nothing was run",
    ),
    "inside": (
        lambda r, canary: r["config"]["data"]["eval_transform"].update(std=[_load(canary)]),
        "data.eval_transform.std[0]._target_ is 'torch.load', but nothing is made of settings there",
    ),
    "download": (
        lambda r, canary: r["model"].update(kind="timm", name="resnet18", pretrained=True),
        "requests other weights (pretrained)",
    ),
    "file": (lambda r, canary: r["model"].update(weights="/etc/passwd"), "requests other weights (weights)"),
    "kind": (lambda r, canary: r["model"].update(kind="os.system"), "cannot be built: unknown model 'os.system'"),
    "size": (lambda r, canary: r["model"].update(widths=[2**40] * 4), "cannot be built"),
    "reading": (lambda r, canary: r["config"]["data"]["load"].update(shorter_side="x"), "shorter_side='x'"),
    "no keys": (lambda r, canary: [r.pop(name) for name in ("model", "pixels")], "wrong type: model, pixels"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_would_run_something_are_refused_by_every_command(capsys, tmp_path, photos, pickled, canary, name):
    change, message = WEIGHTS[name]
    run = received("retrieval", tmp_path / "run", photos)
    weights = with_data(run / "model.pt", lambda record: change(record, canary))
    kept = Index.load(kept_index())
    assert kept.origin is not None
    own = replace(kept.origin, model=weights, sha256=sha256(weights.read_bytes()).hexdigest())
    index = replace(kept, origin=own).save(tmp_path / "index")  # it names its own model
    query = photos / "class 0" / "0.png"
    for words in (
        ["embed", run, photos, "-o", tmp_path / "out.npz"],
        ["embed", weights, photos, "-o", tmp_path / "out.npz"],
        ["export", run, "-o", tmp_path / "out.pt2"],
        ["search", query, "--index", index],
        ["search", query, "--index", index, "--model", run],
    ):
        told = refused(capsys, *words)
        assert f"rankgrad: {weights}" in told and message in told
    assert not (tmp_path / "out.npz").exists() and not (tmp_path / "out.pt2").exists()


def test_the_data_of_an_exported_run_is_looked_at_too(capsys, tmp_path, photos, canary):
    run = received("retrieval", tmp_path / "run", photos)
    with_data(run / "model.pt", lambda record: record["config"]["data"].update(load=system_call(canary)))
    told = refused(capsys, "export", run, "-o", tmp_path / "out.pt2")
    assert "model.pt: data.load._target_ is 'os.system', which is no data of rankgrad; nothing was run" in told


def test_pickles_in_the_place_of_weights_are_not_opened(capsys, tmp_path, photos, canary, pickled):
    run = received("retrieval", tmp_path / "run", photos)
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Touch(canary)))
    for evil in (pickled, plain):
        shutil.copy(evil, run / "model.pt")
        for words in (
            ["embed", run, photos, "-o", tmp_path / "out.npz"],
            ["export", run, "-o", tmp_path / "out.pt2"],
            ["train", *small(photos), f"init={run}", f"out={tmp_path / 'out'}"],
            ["train", *small(photos, "model=timm"), f"model.weights={evil}", f"out={tmp_path / 'out'}"],
        ):
            told = refused(capsys, *words)
            assert "is not a weights file that can be read safely" in told
    assert not (tmp_path / "out").exists()


def test_a_pickle_in_the_place_of_a_model_of_scores_is_not_opened(capsys, tmp_path, canary, pickled):
    rows = one_list(tmp_path / "rows.csv")
    run = copied("scores", tmp_path / "run", rows=rows)
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Touch(canary)))
    for evil in (pickled, plain):
        shutil.copy(evil, run / "model.pt")
        for words in (["predict", run, rows, "-o", tmp_path / "scores.csv"], ["evaluate", run, "--root", rows]):
            assert "model.pt" in refused(capsys, *words)
    assert not (tmp_path / "scores.csv").exists()


def test_objects_among_the_scores_of_a_run_are_not_unpickled(capsys, tmp_path, canary):
    run = copied("scores", tmp_path / "run")
    columns = dict(np.load(run / "scores.npz"))
    for name in ("score", "relevance"):
        np.savez(run / "scores.npz", **{**columns, name: np.array([Touch(canary)] * 60, dtype=object)})
        assert "does not unpickle them" in refused(capsys, "evaluate", run)
        assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0  # a page as far as there is something
        assert "does not unpickle them" in (tmp_path / "page.html").read_text()


def test_objects_in_an_npz_are_not_unpickled(capsys, tmp_path, photos, canary):
    run = received("retrieval", tmp_path / "run", photos)
    evil = np.array([Touch(canary)] * 25, dtype=object)
    columns = dict(np.load(run / "embeddings.npz"))
    for name in ("embeddings", "labels", "names"):
        np.savez(run / "embeddings.npz", **{**columns, name: evil})
        for words in (["evaluate", run], ["evaluate", run / "embeddings.npz"], ["index", run / "embeddings.npz"]):
            assert "does not unpickle them" in refused(capsys, *words)
        assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0  # a page as far as there is something
        assert "does not unpickle them" in (tmp_path / "page.html").read_text()


# ------------------------------------------------------------------------------------------------------------- trust

OWN = """
from pathlib import Path
from rankgrad_workbench.datasets.transforms import PhotoEval
from rankgrad.losses import SmoothAPLoss

Path(__file__).with_name("imported").touch()

class Own(PhotoEval):
    pass

class OwnLoss(SmoothAPLoss):
    pass
"""


def test_a_user_s_own_classes_need_the_name_of_their_package_every_time(capsys, tmp_path, photos, monkeypatch):
    package = tmp_path / "packages" / "own_of_a_user"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    run = tmp_path / "run"
    own = ["data.eval_transform._target_=own_of_a_user.Own", "loss=smooth_ap", "loss._target_=own_of_a_user.OwnLoss"]
    settings = [*small(photos), *own, f"out={run}"]
    assert "trust=PACKAGE" in refused(capsys, "train", *settings)
    assert not (package / "imported").exists() and not run.exists()
    assert main(["train", *settings, "trust=own_of_a_user"]) == 0
    assert "own_of_a_user.Own" in (run / "config.yaml").read_text()
    assert not any(re.search("trust", file.read_text()) for file in run.glob("*.yaml"))
    npz, page, program = (str(tmp_path / name) for name in ("a.npz", "page.html", "model.pt2"))
    query = str(photos / "class 0" / "0.png")
    commands = [
        ["train", f"resume={run}"],
        ["report", str(run), "-o", page],
        ["embed", str(run), str(photos), "-o", npz],
        ["export", str(run), "-o", program],
        ["search", query, "--index", str(tmp_path / "a.index")],
    ]
    for words in commands:
        flag = ["trust=own_of_a_user"] if words[0] == "train" else ["--trust", "own_of_a_user"]
        if words[0] != "search":
            assert "Own" in refused(capsys, *words)
        capsys.readouterr()
        done = main([*words, *flag])
        if words[0] == "export":  # a transform of one's own can't be put into words: it is found and told apart
            assert done == 2 and "Own is your own transform" in capsys.readouterr().err
        else:
            assert done == 0
        if words[0] == "embed":
            assert main(["index", npz, "-o", str(tmp_path / "a.index")]) == 0
            assert "--trust PACKAGE" in refused(capsys, *commands[-1])


# -------------------------------------------------------------------------------------------------------------- fuzz

# What is damaged of a run, the command that reads it, and whether a checksum finds every damage of its content.
FUZZED = [
    ("embeddings.npz", "evaluate RUN/embeddings.npz --bootstrap 0 --clusters none", True),
    ("embeddings.npz", "index RUN/embeddings.npz -o TMP/fuzzed.index", True),
    ("config.yaml", "train resume=RUN", False),
    ("config.yaml", "report RUN -o TMP/page.html", False),
    ("after.json", "report RUN -o TMP/page.html", False),
    ("before.json", "report RUN -o TMP/page.html", False),
    ("facts.json", "report RUN -o TMP/page.html", False),
    ("health.json", "report RUN -o TMP/page.html", False),
    ("logs/metrics.csv", "report RUN -o TMP/page.html", False),
    ("model.pt", "embed RUN PHOTOS -o TMP/out.npz", True),
    ("photos.index", "search QUERY --index RUN/photos.index --model RUN", True),
    ("scores/scores.npz", "evaluate RUN/scores --bootstrap 0", True),
    ("scores/model.pt", "predict RUN/scores ROWS -o TMP/scores.csv", True),
    ("scores/config.yaml", "train resume=RUN/scores", False),
    ("scores/config.yaml", "evaluate RUN/scores --root ROWS --bootstrap 0", False),
    ("scores/after.json", "report RUN/scores -o TMP/page.html", False),
]


def _fuzz(tmp_path: Path, photos: Path, cases: list[tuple[str, str, bool]], times: int) -> None:
    run = received("retrieval", tmp_path / "run", photos)
    shutil.copy(kept_index(), run / "photos.index")
    rows = one_list(tmp_path / "rows.csv")
    copied("scores", run / "scores", rows=rows)
    query = photos / "class 1" / "1.png"
    fuzz({"RUN": run, "TMP": tmp_path, "PHOTOS": photos, "QUERY": query, "ROWS": rows}, cases, times)


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path, photos):
    _fuzz(tmp_path, photos, FUZZED, times=6)


@pytest.mark.slow
@pytest.mark.parametrize("case", FUZZED, ids=lambda case: f"{case[0]}-{case[1].split()[0]}")
def test_many_damaged_files_end_in_one_line(tmp_path, photos, case):
    _fuzz(tmp_path, photos, [case], times=200)
