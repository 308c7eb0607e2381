"""Plug-ins: the example package, built and installed; what is imported and when; names that are taken; broken ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from small_runs import FEW_WEIGHTS

from rankgrad import losses
from rankgrad.common import plugins
from rankgrad.evaluation import METRICS, evaluate
from rankgrad_workbench import datasets
from rankgrad_workbench.cli import main
from rankgrad_workbench.cli.settings import commented
from rankgrad_workbench.files import elsewhere
from rankgrad_workbench.runs.folder import Run, written
from rankgrad_workbench.settings import ConfigError, compose, load, make, options
from rankgrad_workbench.settings.kinds import TASKS, of_command
from rankgrad_workbench.training.runner import lasting

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin"
QUICK = [*FEW_WEIGHTS, "evaluation.bootstrap=0", "evaluation.clusters=none", "loggers=[csv]"]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Adds a folder of packages; afterwards neither it nor what was imported from it is there."""
    modules = {*sys.modules}
    monkeypatch.delenv(plugins.SWITCH, raising=False)

    def add(folder: Path) -> None:
        monkeypatch.syspath_prepend(str(folder))
        plugins._installed.cache_clear()

    yield add
    for name in {*sys.modules} - modules:
        if name.startswith(("rankgrad_example", "toy")):
            del sys.modules[name]
    monkeypatch.undo()
    plugins._installed.cache_clear()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as a wheel, installed into a folder."""
    home = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(home), str(EXAMPLE)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(home / "site"), str(wheel)], check=True)
    return home / "site"


def package(folder: Path, group: str, entries: dict[str, str], code: str = "", name: str = "toy") -> Path:
    """A package with entry points, as an installation leaves it: a module and its metadata."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [f"[rankgrad.{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.py").write_text(code)
    return folder


CANARY = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"


# ------------------------------------------------------------------------------------------------------ the example


def test_the_example_is_built_installed_used_by_every_command_and_removed_again(site, fresh, tmp_path, capsys):
    assert "squared_ap" not in options("loss")
    fresh(site)
    assert "squared_ap" in options("loss") and "stripes" in options("data")
    words = ["data=stripes", "loss=squared_ap", "loss.tau=0.1", "evaluation.extra=[perfect]", *QUICK]
    assert main(["train", *words, f"out={tmp_path / 'run'}"]) == 0
    shown = capsys.readouterr().out
    assert "with the loss squared_ap of rankgrad-example 0.1" in shown
    run = Run(tmp_path / "run")
    assert run.read_facts()["plugins"] == [
        "data set stripes of rankgrad-example 0.1",
        "loss squared_ap of rankgrad-example 0.1",
        "metric perfect of rankgrad-example 0.1",
    ]
    assert 0 <= run.read_values()["perfect"] <= 1 and compose(["loss=squared_ap"]).loss.tau == 0.05
    assert "SquaredAPLoss" in run.page.read_text() and "perfect" in run.page.read_text()
    assert main(["report", str(run.folder)]) == 0 and main(["train", f"resume={run.folder}"]) == 0
    evaluated = ["evaluate", str(run.embeddings), "--extra", "perfect", "--bootstrap", "0", "--clusters", "none"]
    assert main([*evaluated, "-o", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text())["values"]["perfect"] == run.read_values()["perfect"]
    capsys.readouterr()
    assert main(["steps", str(run.folder)]) == 0
    assert capsys.readouterr().out.startswith("run: 1 steps, R@1 ")


@pytest.mark.slow
def test_the_example_is_compared_and_tuned(site, fresh, tmp_path, monkeypatch):
    fresh(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    words = ["loss=squared_ap,supap", "data=stripes", "evaluation.extra=[perfect]", *QUICK]
    assert main(["compare", *words, "seeds=0", "-o", str(tmp_path / "compare")]) == 0
    assert Run(tmp_path / "compare" / "squared_ap-seed0").read_values().keys() >= {"perfect"}
    tuned = ["loss=squared_ap", "data=stripes", "evaluation.extra=[perfect]", "metric=perfect", "trials=2", "folds=2"]
    tune = ["tune", *tuned, "space.loss.tau=log(0.01,0.2)", *QUICK, "seeds=0", "-o", str(tmp_path / "tune")]
    # a process of its own: the one that forks trials may run since an earlier test, which did not have the plug-in
    subprocess.run([sys.executable, "-m", "rankgrad", *tune], check=True)


def test_a_loss_that_takes_only_its_own_settings_is_trained(tmp_path, fresh):
    code = (
        "from rankgrad import losses, ranks, relaxations\n"
        "class Toy(losses.RankLoss):\n"
        "    def __init__(self, tau: float = 0.1) -> None:\n"
        "        step = relaxations.Sigmoid(tau)\n"
        "        super().__init__(ranks.Soft(step, step), penalty=abs)\n"
    )
    fresh(package(tmp_path, "losses", {"toy_own": "toy_own:Toy"}, code, name="toy_own"))
    words = ["loss=toy_own", "loss.tau=0.2", *QUICK, "trainer.max_epochs=1", "sampler.batches_per_epoch=1"]
    assert main(["train", *words, f"out={tmp_path / 'run'}"]) == 0


def test_settings_of_a_run_that_names_a_plug_in_need_it_and_say_so(site, fresh, tmp_path):
    path = tmp_path / "config.yaml"
    config = compose(["loss=pnp"])
    config.loss = {"_target_": "rankgrad_example.losses.SquaredAPLoss", "tau": 0.1}
    path.write_text(OmegaConf.to_yaml(lasting(config), resolve=True))
    with pytest.raises(ConfigError, match="no loss of rankgrad; nothing was run"):
        load(path)
    fresh(site)
    assert make(load(path).loss, slot="loss").ranks.pos.tau == 0.1


# ------------------------------------------------------------------------------------------------ imported when used


def test_what_is_not_named_is_not_imported(tmp_path, fresh, capsys):
    code = CANARY + "class Toy: ...\ndef toy(ranks): ...\n"
    for group, inside in (("losses", ":Toy"), ("metrics", ":toy"), ("datasets", ":toy"), ("commands", "")):
        package(tmp_path / group, group, {"toy": f"toy{group}{inside}"}, code, f"toy{group}")
        fresh(tmp_path / group)
    embeddings = torch.eye(4).repeat(2, 1)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "toy" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "toy" in capsys.readouterr().out
    assert main(["datasets"]) == 0 and "from toydatasets 1.2" in capsys.readouterr().out
    assert main(["train", "--cfg"]) == 0
    evaluate(embeddings, torch.arange(4).repeat(2), intervals=0)
    compose(["loss=pnp"])
    assert not [*tmp_path.rglob("imported")]
    with pytest.raises(ValueError, match="unknown metric 'toi'"):
        evaluate(embeddings, torch.arange(4).repeat(2), metrics=[*METRICS, "toi"], intervals=0)
    assert not [*tmp_path.rglob("imported")]
    losses.find("toy")
    assert [*tmp_path.rglob("imported")]


def test_a_received_file_names_exactly_the_registered_object_with_plain_values(tmp_path, fresh):
    code = "class Toy:\n    def __init__(self, part=None): self.part = part\nclass Other(Toy): ...\n"
    fresh(package(tmp_path, "losses", {"toy": "toy:Toy"}, code))
    assert make({"_target_": "toy.Toy", "part": [1, "x"]}, slot="loss").part == [1, "x"]
    for node, told in (
        ({"_target_": "toy.Other"}, "'toy.Other', which is no loss of rankgrad"),
        ({"_target_": "toy.Toy", "part": {"_target_": "toy.Toy"}}, "nothing is made of settings there"),
        ({"_target_": "toy.Toy", "loss": {"_target_": "rankgrad.losses.PNPLoss"}}, "nothing is made of settings there"),
    ):
        with pytest.raises(ConfigError, match=told):
            make(node, slot="loss")
    with pytest.raises(ConfigError, match="no transform of rankgrad"):
        make({"_target_": "toy.Toy"}, slot="transform")


# ------------------------------------------------------------------------------------------- names taken, broken ones


@pytest.mark.parametrize(("group", "name"), [("losses", "roadmap"), ("datasets", "folder"), ("commands", "train")])
def test_a_built_in_name_cannot_be_taken(tmp_path, fresh, group, name):
    fresh(package(tmp_path, group, {name: "toy:Toy", "toy": "toy:Toy"}, CANARY))
    taken = {"losses": losses.LOSSES, "datasets": ["folder"], "commands": ["train"]}[group]
    with pytest.warns(plugins.PluginWarning, match=rf"{name} of toy 1.2 is left out: rankgrad has that name"):
        assert name not in plugins.registered(group, taken)
    if group == "losses":
        assert losses.find("roadmap") is losses.ROADMAPLoss
    assert not (tmp_path / "imported").exists()


@pytest.mark.filterwarnings("always")
def test_a_command_tells_once_that_a_plug_in_is_left_out(tmp_path, fresh, capsys):
    fresh(package(tmp_path, "losses", {"roadmap": "toy:Toy"}, CANARY))
    assert main(["train", "--cfg", "loss=pnp"]) == 0
    assert capsys.readouterr().err.count("is left out: rankgrad has that name") == 1


def test_of_two_plug_ins_with_one_name_the_second_is_left_out_and_named(tmp_path, fresh):
    for name in ("toy", "toytoo"):
        fresh(package(tmp_path / name, "losses", {"hinge": f"{name}:Toy"}, name=name))
    with pytest.warns(plugins.PluginWarning, match="hinge of toytoo 1.2 is left out: toy"):
        assert plugins.registered("losses")["hinge"].distribution == "toy"


def test_a_plug_in_that_fails_to_import_is_named_in_one_line_and_stops_nothing_else(tmp_path, fresh, capsys):
    fresh(package(tmp_path, "commands", {"toy": "toy"}, "raise RuntimeError('of its own')"))
    assert main(["toy"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == ["rankgrad: the command toy of toy 1.2 can't be imported: RuntimeError: of its own"]
    assert main(["datasets"]) == 0
    (tmp_path / "toy.py").write_text('"""Do something."""\n')
    assert main(["toy"]) == 2 and "has no options; see docs/plugins.md" in capsys.readouterr().err


def test_a_loss_that_fails_to_import_is_told_by_the_command_that_names_it(tmp_path, fresh, capsys):
    fresh(package(tmp_path, "losses", {"toy": "toy:Toy"}, "raise RuntimeError('of its own')"))
    assert main(["train", "loss=toy", "--cfg"]) == 2
    assert "the loss toy of toy 1.2 can't be imported: RuntimeError: of its own" in capsys.readouterr().err
    assert main(["train", "loss=pnp", "--cfg"]) == 0


def test_a_metric_that_gives_something_else_is_told(tmp_path, fresh):
    fresh(package(tmp_path, "metrics", {"toy": "toy:toy"}, "def toy(ranks): return 1.0"))
    with pytest.raises(ValueError, match="metric toy of toy 1.2 .*8 queries; got float"):
        evaluate(torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2), metrics=[*METRICS, "toy"], intervals=0)


def test_plug_ins_are_switched_off_all_or_all_but_some(tmp_path, fresh, monkeypatch):
    for name in ("toy", "toy_too"):
        fresh(package(tmp_path / name, "losses", {name: f"{name}:Toy"}, name=name))
    assert {"toy", "toy_too"} <= plugins.registered("losses").keys()
    monkeypatch.setenv(plugins.SWITCH, "none")
    assert not plugins.registered("losses") and not plugins.config_folders()
    monkeypatch.setenv(plugins.SWITCH, "Toy.Too")
    assert [*plugins.registered("losses")] == ["toy_too"]


ROW = """
from rankgrad_workbench.settings.kinds import TASKS, TaskRow
ROW = TaskRow(
    command="toy", settings="toy", groups=("data",), trains="toy", reads="toy", result="toy.json",
    files=("config.yaml", "toy.npz", "toy.json"), columns=("toy",), mains=("toy",), kept=("seed",),
    evaluates="toy",
)

class Report:
    values = {"toy": 1.0}
    def __init__(self, extra): self.extra = extra
    def __str__(self): return f"toy run of {len(self.extra)} metrics"
    def to_json(self): return "{}"

def evaluate_run(folder, *, extra=()):
    return Report(extra)
"""


def test_a_kind_of_run_of_a_plug_in_is_known_to_commands_settings_and_folders(tmp_path, fresh, capsys, monkeypatch):
    site = package(tmp_path / "site", "tasks", {"toy": "toy:ROW"}, ROW)
    entries = site / "toy-1.2.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "\n[rankgrad.configs]\ntoys = toys.configs\n")
    tree = site / "toys" / "configs" / "toy"
    (tree / "data").mkdir(parents=True)
    (tree / "toy.yaml").write_text(
        "defaults:\n  - data: rows\n  - _self_\ntask: toy\nseed: 0  # of the toy\ntrust: null\n"
    )
    (tree / "data" / "rows.yaml").write_text("name: rows\nroot: ???\n")
    monkeypatch.setenv(plugins.SWITCH, "toy")
    ours = [*TASKS]
    assert "toy" not in ours
    fresh(site)
    assert [*TASKS] == [*ours, "toy"] and len(TASKS) == len(ours) + 1 and of_command("toy") is TASKS["toy"]
    config = compose(["task=toy", "data.root=x", "seed=3"])
    assert (config.task, config.seed, config.data.name) == ("toy", 3, "rows") and options("data", "toy") == ["rows"]
    assert "# of the toy" in commented(config, [], "toy")
    with pytest.raises(ConfigError, match=r"unknown data 'row'; did you mean 'rows'"):
        compose(["data=row"], "toy")
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    OmegaConf.save(config, run.config)
    assert load(run.config).seed == 3 and run.kind == "toy" and not run.finished
    for name in ("toy.npz", "toy.json"):
        (run.folder / name).write_text("{}")
        assert written(name)
    assert run.finished and main(["check", str(run.folder)]) == 2  # toy.npz is no archive
    assert re.search(r"finished run \(toy\)\n(.*\n)*  toy.npz +damaged", capsys.readouterr().out)
    # its own module evaluates it, and takes the options that are its arguments
    capsys.readouterr()
    assert main(["evaluate", str(run.folder), "-e", "a, b", "-o", str(tmp_path / "report.json")]) == 0
    assert capsys.readouterr().out.startswith("toy run of 2 metrics") and (tmp_path / "report.json").exists()
    assert main(["evaluate", str(run.folder), "-k", "1"]) == 2
    assert "--ks cannot be given here: " in capsys.readouterr().err
    assert plugins.used({"task": "toy"}) == [plugins.registered("tasks")["toy"]]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "ROW = None",
            "the kind of run toy of toy 1.2 must be a rankgrad_workbench.settings.kinds.TaskRow; got a NoneType",
        ),
        ("import nowhere", "the kind of run toy of toy 1.2 can't be imported: ModuleNotFoundError"),
    ],
)
def test_a_kind_of_run_that_cannot_be_used_is_left_out_and_named_when_it_is_asked_for(
    code, said, tmp_path, fresh, monkeypatch
):
    monkeypatch.setenv(plugins.SWITCH, "toy")
    fresh(package(tmp_path / "site", "tasks", {"toy": "toy:ROW", "scores": "toy:ROW"}, code))
    with pytest.warns(plugins.PluginWarning) as warned:
        assert "toy" not in [*TASKS]
    assert any(said in str(each.message) for each in warned)
    assert any("scores of toy 1.2 is left out: rankgrad has that name" in str(each.message) for each in warned)
    with pytest.warns(plugins.PluginWarning), pytest.raises(plugins.PluginError, match="toy of toy 1.2"):
        compose(["task=toy"])


@pytest.mark.parametrize(
    "words",
    [
        *([command, "roadmap/table2"] for command in ("reproduce", "paper-figure", "sodeep")),
        *(["train", word] for word in ("data=sop", "data=SOP", "sop", "experiment=roadmap/sop", "roadmap/sop")),
        *(["train", "data=glyphs", word] for word in ("recipe=finetune", "loss=sodeep_ap", "loss=supap+sodeep_ap")),
        *([command, "loss=sodeep_ap,supap", "data=glyphs"] for command in ("compare", "tune")),
        ["train", "data.load._target_=rankgrad_papers.datasets.load_sop"],
        ["datasets", "sop"],
        ["datasets", "check", "cub"],
        ["figure", "rambo/fig1"],
    ],
    ids=" ".join,
)
def test_each_name_of_the_laboratory_says_where_it_is(words, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "In a clone: pip install ./papers." in told and "rankgrad-papers" not in told and told.count("\n") == 1


@pytest.mark.parametrize("words", [["detect", "train"], ["train", "task=detection"]], ids=" ".join)
def test_each_name_of_the_package_of_detectors_says_where_it_is(words, capsys):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "In a clone: pip install ./packages/rankgrad-detection." in told and told.count("\n") == 1


def test_a_run_of_a_detector_says_what_reads_it(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("task: detection\n")
    for words in (["report"], ["evaluate"], ["check"], ["embed"], ["train"]):
        given = [f"resume={tmp_path}"] if words == ["train"] else [str(tmp_path)]
        assert main([*words, *given, *([str(tmp_path)] if words == ["embed"] else [])]) == 2
        told = capsys.readouterr().err
        assert "pip install ./packages/rankgrad-detection." in told and told.count("\n") == 1, words


def test_a_name_of_the_laboratory_in_python_says_where_it_is():
    with pytest.raises(ValueError, match=r"In a clone: pip install \./papers"):
        datasets.find("cub")


def test_names_that_are_not_of_the_laboratory_get_no_hint_of_it():
    assert elsewhere.of_laboratory("loss", "roadmap") == elsewhere.of_laboratory("data set", "folder") == ""
    assert elsewhere.of_laboratory("figure", "roads/1") == ""
    assert elsewhere.of_laboratory("experiment", "rambo/x", ["rambo/cub_log"]) == ""
