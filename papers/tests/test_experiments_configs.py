"""Published experiments: every file is a run, with the values that the papers print."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import dataset_trees
import pytest
import torch
from marks import slow_unless
from omegaconf import DictConfig, OmegaConf
from torch import nn

from rankgrad.batches.memory import RowMemory
from rankgrad_papers.experiments.numbers import numbers
from rankgrad_workbench.datasets.transforms import PhotoEval, PhotoTrain
from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.runs.history import best, evaluations
from rankgrad_workbench.settings import GROUPS, compose, make, options, plain
from rankgrad_workbench.tasks.retrieval import task as runs

pytestmark = pytest.mark.usefixtures("no_page")

FOLDER = Path(str(resources.files("rankgrad_papers"))) / "configs" / "experiment"
NAMES = [name for name in options("experiment") if name != "none"]
RAMBO = {"sop": 2, "cub": 3, "inshop": 4}  # data set -> table


@cache
def experiment(name: str, *settings: str) -> DictConfig:
    config = compose([f"experiment={name}", "data.root=x", *settings])
    config.derived.num_classes, config.derived.embedding_size = 5, 6
    return config


def batch_size(config: DictConfig) -> int:
    return int(config.sampler.classes_per_batch * config.sampler.samples_per_class)


# ------------------------------------------------------------------------------------------------- every file is a run


def test_the_files_are_those_of_the_papers():
    assert set(NAMES) == {
        *(f"rambo/{data}_{weight}" for data in RAMBO for weight in ("log", "loglog")),
        *(f"auc/{data}_{size}" for data in ("cub", "cub_cropped") for size in (224, 256)),
        *(f"pnp/{data}{kind}" for data in ("sop", "vehicleid") for kind in ("", "_384", "_merged")),
        "pnp/inaturalist",
        *(f"roadmap/{kind}{data}" for kind in ("", "sota_", "deit_", "xbm_") for data in ("cub", "sop", "inaturalist")),
        "roadmap/inshop",
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_class_of_a_published_experiment_is_left_out_of_training(name):
    assert experiment(name).sampler.short_classes == "repeat"


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_makes_its_loss_and_transforms_for_its_own_data(name):
    config = experiment(name)
    data = re.sub(r"^(sota|deit|xbm)_|_(log|loglog|224|256|384|merged)$", "", name.split("/")[1])
    assert config.data.name == data
    assert data in config.data.load.get("source", config.data.load._target_)
    if not config.loss._target_.endswith("PMLLoss") or pytest.importorskip("pytorch_metric_learning"):
        assert isinstance(make(config.loss, slot="loss"), nn.Module)
    train, test = (
        make(config.data.train_transform, slot="transform"),
        make(config.data.eval_transform, slot="transform"),
    )
    assert isinstance(train, PhotoTrain) and isinstance(test, PhotoEval)
    image = torch.zeros(3, 300, 400, dtype=torch.uint8)
    for transform in (train, test):
        assert transform([image], torch.tensor([0]), 0).shape == (1, 3, config.data.size, config.data.size)
    assert config.model.pretrained is True and config.evaluation.split == "test"


@pytest.mark.parametrize(
    ("name", "embedding_size", "frozen"),
    [("rambo/cub_log", 512, False), ("roadmap/sota_cub", 512, True), ("roadmap/deit_sop", 384, False)],
)
def test_the_networks_can_be_built(name, embedding_size, frozen):
    settings = {**plain(experiment(name).model), "pretrained": False}
    model = build_model(settings.pop("kind"), in_channels=3, **settings)
    assert model.embedding_size == embedding_size
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert {norm.training for norm in norms} == ({not frozen} if norms else set())
    side = experiment(name).data.size
    with torch.inference_mode():
        assert model.eval()(torch.zeros(1, 3, side, side)).shape == (1, embedding_size)


def comments(path: Path) -> str:
    return "\n".join(line.partition("#")[2] for line in path.read_text("utf-8").splitlines())


def leaf(path: Path) -> str:
    """An experiment that has the settings of a file: the file itself, or one that includes it."""
    name = str(path.relative_to(FOLDER).with_suffix(""))
    if "_base" not in name:
        return name
    users = [other for other in sorted(FOLDER.rglob("*.yaml")) if f"- /experiment/{name}\n" in other.read_text("utf-8")]
    return leaf(users[0])


def test_a_shorter_side_and_a_height_and_width_replace_one_another_from_the_command_line():
    code = ["data.train_transform.resize=null", "data.train_transform.scale=[0.08,1.0]"]
    made = make(compose(["experiment=pnp/sop", "data.root=x", *code]).data.train_transform, slot="transform")
    assert (made.resize, made.scale) == (None, [0.08, 1.0])
    square = ["data.eval_transform.resize=[256,256]", "data.train_transform.scale=null"]
    made = compose(["data=sop", "data.root=x", *square]).data
    assert (
        make(made.eval_transform, slot="transform").resize == [256, 256]
        and make(made.train_transform, slot="transform").scale is None
    )


SETTING = r"[a-z_]+(?:\.[a-z_]+)*=\S*[^\s.,:;]"


def overrides() -> list[tuple[str, ...]]:
    """(experiment, setting, ...) for all settings that a comment gives together, e.g. loss.start=0 loss.offset=1.0."""
    found = set()
    for path in FOLDER.rglob("*.yaml"):
        for together in re.findall(rf"(?<![\w.]){SETTING}(?: {SETTING})*", comments(path)):
            found.add((leaf(path), *together.split()))
    return sorted(found)


@pytest.mark.slow
def test_every_setting_that_a_comment_gives_fits_its_experiment():
    listed = overrides()
    assert {("rambo/cub_log", "memory=none"), ("roadmap/inaturalist", "loss.start=0", "loss.offset=1.0")} <= set(listed)
    for name, *settings in listed:
        config = compose([f"experiment={name}", "data.root=x", *settings])
        for setting in settings:
            key, _, value = setting.partition("=")
            if key not in GROUPS:
                assert plain(OmegaConf.select(config, key)) == plain(OmegaConf.from_dotlist([f"x={value}"]).x), setting
        make(config.data.train_transform, slot="transform")


@pytest.mark.parametrize("loss", ["supap", "smooth_ap", "rambo_ap"])
def test_the_losses_of_roadmaps_tables_replace_one_another(loss):
    config = experiment("roadmap/deit_sop", f"loss={loss}")
    assert plain(config.loss) == plain(compose([f"loss={loss}"]).loss)
    make(config.loss, slot="loss")


# ------------------------------------------------------------------------------------------------ values of the papers


def test_rambos_values_are_those_of_its_table_9():
    table = {(n.where["dataset"], n.row): n.value for n in numbers() if (n.paper, n.table) == ("rambo", "9")}
    assert len(table) == 9
    for data in RAMBO:
        for weight in ("log", "loglog"):
            config = experiment(f"rambo/{data}_{weight}")
            found = {"lr": config.optimizer.lr, "margin": config.loss.margin, "lambda": config.loss.lambda_}
            assert found == {row: table[data, row] for row in found}
            assert config.loss.weight == weight
            made = make(config.loss, slot="loss")
            assert (made.lambda_, made.margin, made.normalized_ranks) == (found["lambda"], found["margin"], True)


def rows_of_tables() -> list[tuple[str, str, str]]:
    """(experiment, paper's table, data set in the table): whose columns an experiment must have."""
    found = [
        (f"rambo/{data}_{weight}", f"rambo {t}", data) for data, t in RAMBO.items() for weight in ("log", "loglog")
    ]
    found += [(f"auc/{data}_{s}", f"auc {t}", data) for t, data in ((1, "cub"), (2, "cub_cropped")) for s in (224, 256)]
    found += [("pnp/sop", "pnp 1", "sop"), ("pnp/sop", "pnp 3", "sop"), ("pnp/sop_384", "pnp 3", "sop")]
    for size in ("small", "medium", "large"):
        data = f"vehicleid_{size}"
        found += [
            ("pnp/vehicleid", "pnp 2", data),
            ("pnp/vehicleid", "pnp 4", data),
            ("pnp/vehicleid_384", "pnp 4", data),
        ]
    found += [("pnp/inaturalist", "pnp 5", "inaturalist")]
    for data in ("cub", "sop", "inaturalist"):
        found += [(f"roadmap/{data}", f"roadmap {t}", data) for t in (1, 2)]
        found += [(f"roadmap/deit_{data}", f"roadmap {t}", data) for t in (4, 7)]
        found += [(f"roadmap/sota_{data}", "roadmap 8", data)]
    return found


@pytest.mark.parametrize(("name", "table", "data"), rows_of_tables())
def test_network_width_batch_and_image_size_are_those_of_the_table(name, table, data):
    config = experiment(name)
    backbone = {"resnet50.tv_in1k": "ResNet-50", "deit_small_distilled_patch16_224": "DeiT-S"}[config.model.name]
    mine = {"backbone": backbone, "batch_size": str(batch_size(config)), "image_size": str(config.data.size)}
    mine["dim"] = str(config.model.embedding_size or 384)
    listed = [n for n in numbers() if f"{n.paper} {n.table}" == table and n.own and n.where["dataset"] == data]
    assert listed
    fits = [n for n in listed if all(n.where.get(column, mine[column]) == mine[column] for column in mine)]
    assert fits, f"none of {[dict(n.where) for n in listed]} is {mine}"
    asked = {f"R@{k}" for k in config.evaluation.ks}
    assert {n.metric for n in fits if n.metric.startswith("R@")} <= asked


TABLE_6 = {32: 8, 128: 32, 224: 56, 384: 96}  # batch size -> classes of 4 images


@pytest.mark.parametrize("data", ["cub", "sop", "inaturalist"])
def test_the_batch_sizes_of_roadmaps_table_6_are_those_that_the_comment_gives(data):
    printed = {int(n.where["batch_size"]) for n in numbers() if (n.paper, n.table) == ("roadmap", "6")}
    assert printed == set(TABLE_6)
    for size, classes in TABLE_6.items():
        assert f"{classes} ({size})" in comments(FOLDER / "roadmap/_base/all.yaml")
        assert batch_size(experiment(f"roadmap/{data}")) // 4 * classes // 16 * 4 == size


SQUARE, PLAIN = [256, 256], None
OPTIMISER = "adam"
PROTOCOLS: list[tuple[str, str, Any, str]] = [
    # RaMBO
    *(
        entry
        for data, classes, each, pairs in (("sop", 32, 4, 10), ("cub", 32, 4, None), ("inshop", 16, 8, 4))
        for entry in (
            (f"rambo/{data}_log", "sampler.classes_per_batch", classes, "text: batches of 128"),
            (f"rambo/{data}_log", "sampler.samples_per_class", each, "text"),
            (f"rambo/{data}_log", "sampler.batches_per_pair", pairs, "text: super-label pairs of Cakir et al."),
            (f"rambo/{data}_log", "sampler.pair_order", "consecutive" if pairs else "shuffled", "A"),
            (f"rambo/{data}_log", "memory._target_", "rankgrad.batches.memory.RowMemory", "section 4.3"),
            (f"rambo/{data}_log", "memory.batches", 3, "appendix A"),
            (f"rambo/{data}_log", "data.train_transform.resize", SQUARE, "text"),
            (f"rambo/{data}_log", "data.train_transform.scale", PLAIN, "text: random crops of 224"),
            (f"rambo/{data}_log", "data.eval_transform.resize", SQUARE, "text"),
            (f"rambo/{data}_log", "optimizer.name", OPTIMISER, "text"),
            (f"rambo/{data}_log", "optimizer.weight_decay", 4e-4, "text"),
            (f"rambo/{data}_log", "optimizer.schedule", "steps", "text: dropped by 70 % after 35 epochs"),
            (f"rambo/{data}_log", "optimizer.milestones", [35], "text"),
            (f"rambo/{data}_log", "optimizer.factor", 0.3, "text"),
            (f"rambo/{data}_log", "trainer.max_epochs", 80, "text: at most"),
        )
    ),
    # AUC
    ("auc/cub_224", "data.train_transform.resize", [256, 256], "supplement"),
    ("auc/cub_256", "data.train_transform.resize", [288, 288], "ours"),
    ("auc/cub_cropped_224", "data.train_transform.scale", PLAIN, "supplement"),
    # PNP
    *(
        entry
        for name in ("pnp/sop", "pnp/vehicleid", "pnp/inaturalist")
        for entry in (
            (name, "model.freeze_batch_norm", True, "code"),
            (name, "loss.variant", "Dq", "tables 3 to 5"),
            (name, "loss.tau", 0.01, "text"),
            (name, "loss.alpha", 4.0, "published run"),
            (name, "optimizer.name", OPTIMISER, "text"),
            (name, "optimizer.lr", 1e-5, "text"),
            (name, "optimizer.weight_decay", 4e-4, "text"),
            (name, "optimizer.head_lr_factor", 1.0, "code"),
            (name, "optimizer.factor", 0.3, "code"),
            (name, "sampler.samples_per_class", 4, "text"),
            (name, "data.train_transform.resize", SQUARE, "text"),
            (name, "data.train_transform.scale", PLAIN, "text"),
            (name, "data.eval_transform.resize", SQUARE, "text: Experimental Setup"),
        )
    ),
    ("pnp/sop", "optimizer.milestones", [120, 220, 250, 280], "code"),
    ("pnp/sop", "trainer.max_epochs", 400, "published run"),
    ("pnp/sop_merged", "data.load.merge", 3, "table 6"),
    ("pnp/vehicleid_merged", "data.load.merge", 3, "table 7"),
    ("pnp/vehicleid", "data.load.protocol", "leave_one_out", "text: every image is a query"),
    # ROADMAP
    *(
        (f"roadmap/{name}", key, value, "section 4.1 and supplement")
        for name, values in {
            "cub": {"lr": 1e-6, "weight_decay": 4e-4, "schedule": "constant", "head_lr_factor": 1.0},
            "sop": {"lr": 1e-5, "weight_decay": 1e-4, "milestones": [30, 70], "factor": 0.3, "head_lr_factor": 2.0},
            "inaturalist": {"lr": 1e-5, "weight_decay": 4e-4, "milestones": [30, 70], "head_lr_factor": 2.0},
            "inshop": {"lr": 1e-5, "weight_decay": 1e-4, "schedule": "constant", "head_lr_factor": 2.0},
            "deit_cub": {"name": "adamw", "lr": 1e-6, "weight_decay": 5e-4, "schedule": "constant"},
            "deit_sop": {"name": "adamw", "lr": 1e-5, "weight_decay": 5e-4, "milestones": [25, 50], "factor": 0.3},
            "deit_inaturalist": {"name": "adamw", "lr": 1e-5, "weight_decay": 5e-4, "milestones": [30, 70]},
            "sota_sop": {"name": "adam", "lr": 1e-5, "weight_decay": 1e-4, "milestones": [30, 70]},
        }.items()
        for key, value in ((f"optimizer.{option}", value) for option, value in values.items())
    ),
    *(
        (f"roadmap/{name}", "trainer.max_epochs", epochs, "text")
        for name, epochs in {"cub": 200, "sop": 100, "inaturalist": 90, "deit_cub": 100, "deit_sop": 75}.items()
    ),
    *(
        (f"roadmap/{name}", key, value, "text")
        for name in ("cub", "sop", "inaturalist", "sota_cub", "deit_sop")
        for key, value in {
            "loss.weight": 0.5,
            "loss.tau": 0.01,
            "loss.rho": 100.0,
            "loss.delta": 0.05,
            "loss.alpha": 0.9,
            "loss.beta": 0.6,
            "sampler.samples_per_class": 4,
            "data.train_transform.scale": [(40 / 256) ** 2, 1.0],
            "data.train_transform.ratio": [3 / 4, 4 / 3],
            "trainer.precision": "16-mixed",
        }.items()
    ),
    ("roadmap/cub", "model.freeze_batch_norm", True, "code"),
    *(
        (f"roadmap/{name}", f"data.{kind}_transform.resize", side, "B.2: the shorter side, whatever the data")
        for name, side in {"cub": 256, "sop": 256, "inaturalist": 256, "deit_sop": 256, "sota_inaturalist": 256}.items()
        for kind in ("train", "eval")
    ),
    *((f"roadmap/sota_{name}", "sampler.classes_per_batch", 16, "4.2: as section 4.1") for name in ("cub", "sop")),
    ("roadmap/sop", "sampler.batches_per_pair", 10, "code"),
    ("roadmap/sop", "sampler.pair_order", "consecutive", "text: as RaMBO"),
    ("roadmap/xbm_sop", "sampler.pair_order", "consecutive", "text: as RaMBO"),
    ("roadmap/cub", "sampler.batches_per_pair", None, "text: no super-labels"),
    ("roadmap/inaturalist", "sampler.batches_per_pair", None, "text"),
    ("roadmap/inshop", "sampler.batches_per_pair", 4, "code"),
    ("roadmap/sota_cub", "model.pooling", "max", "section 4.2"),
    ("roadmap/sota_cub", "model.head", "layer_norm", "section 4.2"),
    ("roadmap/sota_cub", "data.eval_transform.resize", 288, "code"),
    ("roadmap/sota_sop", "data.eval_transform.resize", 288, "code"),
    ("roadmap/sota_sop", "data.train_transform.resize", 256, "B.2"),
    ("roadmap/sota_inaturalist", "sampler.classes_per_batch", 96, "tables 6 and 8: 384"),
    ("roadmap/deit_cub", "model.head", "none", "text: 384-d, no linear layer"),
    ("roadmap/xbm_sop", "memory.size", "auto", "table 5: the whole training set"),
    ("roadmap/xbm_inaturalist", "memory.size", 60000, "table 5"),
    ("roadmap/xbm_cub", "loss.loss.neg_margin", 0.5, "code"),
    *((f"roadmap/{name}", "seed", 333, "README") for name in ("sota_cub", "sota_sop", "sota_inaturalist")),
]


@pytest.mark.parametrize(("name", "key", "value", "source"), PROTOCOLS)
def test_a_setting_is_that_of_the_paper(name, key, value, source):
    config = experiment(name)
    parent, _, last = key.rpartition(".")
    assert last in (OmegaConf.select(config, parent) if parent else config), key
    assert plain(OmegaConf.select(config, key)) == value, source


def test_an_ablation_leaves_one_part_out_and_keeps_the_rest():
    whole = plain(experiment("rambo/cub_loglog"))
    without_memory = plain(experiment("rambo/cub_loglog", "memory=none"))
    assert without_memory["memory"] == {} and {**without_memory, "memory": whole["memory"]} == whole
    without_margin = plain(experiment("rambo/cub_loglog", "loss.margin=0"))
    assert without_margin["loss"]["margin"] == 0
    assert {**without_margin, "loss": {**without_margin["loss"], "margin": 0.02}} == whole


# ---------------------------------------------------------------------------------------------------------- they train


@pytest.mark.parametrize("name", slow_unless({"rambo/cub_loglog"}, ["rambo/cub_loglog", "roadmap/sota_cub"]))
def test_an_experiment_trains_on_files_in_the_official_layout(tmp_path, name):
    tree = dataset_trees.cub(tmp_path / "data")
    settings = [f"experiment={name}", f"data.root={tree.root}", f"out={tmp_path / 'run'}", "data.load.check=false"]
    # what takes time or a GPU: everything else is the experiment's
    settings += ["model.name=resnet10t", "model.pretrained=false", "data.size=32", "data.resize=36", "data.workers=0"]
    settings += ["sampler.classes_per_batch=2", "sampler.samples_per_class=2", "trainer.max_epochs=2", "threads=1"]
    settings += ["trainer.precision=32-true", "evaluation.every=1", "evaluation.ks=[1]", "evaluation.bootstrap=0"]
    settings += ["trainer.log_every_n_steps=1"]
    run = runs.train(compose(settings), quiet=True)
    task = runs.build(compose(settings), quiet=True)
    assert task.rows.table.name == experiment(name).data.name
    assert len(evaluations(run)) == 2 and best(run, "R@1")[0] in evaluations(run)  # both rules of reporting
    assert isinstance(task.module.loss.loss, RowMemory) == name.startswith("rambo")
    assert task.model.embedding_size == 512
