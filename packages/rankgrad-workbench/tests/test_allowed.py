"""What settings may name: the things of a slot, and a trusted package's own."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rankgrad import losses, metrics, penalties, ranks, relaxations
from rankgrad_workbench.datasets import DATASETS, transforms
from rankgrad_workbench.settings.allowed import OURS, SLOTS, ConfigError, check, find, make, named, packages


def listed(slot: str) -> dict[str, object]:
    return {
        f"{offer.module}.{name}": thing for offer in SLOTS[slot] if offer.ours for name, thing in offer.things().items()
    }


# ------------------------------------------------------------------------------------------------------- what is there


def test_the_lists_hold_what_our_tables_hold():
    assert {f"rankgrad.losses.{kind.__name__}" for kind in losses.LOSSES.values()} <= set(listed("loss"))
    assert {f"rankgrad_workbench.datasets.{load.__name__}" for load in DATASETS.values()} <= set(listed("data"))
    for slot, module in (("step", relaxations), ("penalty", penalties), ("ranks", ranks), ("transform", transforms)):
        classes = [n for n, t in vars(module).items() if inspect.isclass(t) and not n.startswith("_")]
        ours = [
            name for name in classes if getattr(module, name).__module__.startswith(f"{module.__name__.split('.')[0]}.")
        ]
        assert {f"{module.__name__}.{name}" for name in ours} <= set(listed(slot))
    assert listed("metric")["rankgrad.metrics.average_precision"] is metrics.average_precision


def test_nothing_on_a_list_is_of_another_package_or_private():
    for slot in SLOTS:
        for name, thing in listed(slot).items():
            assert thing.__module__.startswith(OURS) and not name.rpartition(".")[2].startswith("_")  # type: ignore[attr-defined]


@pytest.mark.parametrize("slot", ["loss", "miner", "distance", "reducer", "regularizer"])
def test_the_classes_of_pytorch_metric_learning_are_found_in_their_slots(slot):
    pytest.importorskip("pytorch_metric_learning")
    offer = SLOTS[slot][-1]
    for name, thing in offer.things().items():
        assert find(f"{offer.module}.{name}", slot) is thing
        assert issubclass(thing, nn.Module) or "Mixin" in name


# -------------------------------------------------------------------------------------------------------- what is made


def test_parts_are_made_in_parts_and_lists():
    pytest.importorskip("pytorch_metric_learning")
    made = make(
        {
            "_target_": "pytorch_metric_learning.losses.MultipleLosses",
            "losses": [
                {"_target_": "pytorch_metric_learning.losses.ContrastiveLoss", "distance": {"_target_": COSINE}},
                {"_target_": "pytorch_metric_learning.losses.TripletMarginLoss", "reducer": {"_target_": MEAN}},
            ],
            "weights": [1, 0.5],
        },
        slot="loss",
    )
    assert type(made.losses[0].distance).__name__ == "CosineSimilarity"
    assert type(made.losses[1].reducer).__name__ == "MeanReducer"


COSINE = "pytorch_metric_learning.distances.CosineSimilarity"
MEAN = "pytorch_metric_learning.reducers.MeanReducer"
SOFT = {"_target_": "rankgrad.ranks.Soft", "pos": {"_target_": "rankgrad.ranks.relaxations.Heaviside"}}
SOFT["neg"] = {"_target_": "rankgrad.ranks.relaxations.Sigmoid", "tau": 0.1}


def test_a_metric_stands_by_its_name():
    for metric in (
        "average_precision",
        "rankgrad.metrics.average_precision",
    ):
        loss = make({"_target_": "rankgrad.losses.RankLoss", "ranks": SOFT, "metric": metric}, slot="loss")
        assert loss.metric is metrics.average_precision
    with pytest.raises(ConfigError, match="'averag_precision', .*'average_precision'"):
        make({"_target_": "rankgrad.losses.RankLoss", "ranks": SOFT, "metric": "averag_precision"}, slot="loss")


def test_a_penalty_stands_where_a_callable_weight_may():
    node = {
        "_target_": "rankgrad.losses.RaMBORecallLoss",
        "weight": {"_target_": "rankgrad.losses.penalties.Power", "alpha": 2},
    }
    assert make(node, slot="loss").weight == penalties.Power(2)
    assert make({**node, "weight": "log"}, slot="loss").weight == "log"


# --------------------------------------------------------------------------------------------------- what is not made

REFUSED = [
    ("os.system", "step", "which is no step of rankgrad; nothing was run. Only if it is code of your own"),
    ("builtins.eval", "penalty", "which is no penalty of rankgrad; nothing was run"),
    ("torch.load", "transform", "which is no transform of rankgrad; nothing was run"),
    ("rankgrad.losses.penalties.Log", "transform", "which is no transform of rankgrad"),
    ("rankgrad.losses.penalties.Logg", "penalty", "did you mean 'rankgrad.losses.penalties.Log'?"),
    ("rankgrad.losses.penalties.math.log", "penalty", "is no penalty of rankgrad"),
    ("rankgrad.losses.penalties._Log", "penalty", "which is not the name of a class"),
    ("rankgrad_workbench.datasets.contact_sheet", "data", "is no data of rankgrad"),
    ("rankgrad_workbench.models.load_weights", "data", "is no data of rankgrad"),
    ("rankgrad.losses.__builtins__.eval", "loss", "which is not the name of a class"),
    ("pytorch_metric_learning.losses.np.load", "loss", "is no loss of rankgrad"),
    ("pytorch_metric_learning.utils.common_functions.os", "loss", "is no loss of rankgrad"),
    ("", "loss", "which is not the name of a class"),
    ("os;system", "loss", "which is not the name of a class"),
    ("rankgrad.losses.RankLoss\n", "loss", "which is not the name of a class"),
]


@pytest.mark.parametrize(("target", "slot", "message"), REFUSED)
def test_what_is_not_on_the_list_is_refused_with_its_place(target, slot, message):
    with pytest.raises(ConfigError) as error:
        make({"_target_": target}, slot=slot, where="FILE: here")
    told = str(error.value)
    assert message in told and told.startswith(f"FILE: here._target_ is {target!r}") and "\n" not in told


def test_a_name_that_the_library_lacks_is_answered_with_the_closest():
    pytest.importorskip("pytorch_metric_learning")
    with pytest.raises(ConfigError, match="ContrastivLoss.*'ContrastiveLoss'"):
        find("pytorch_metric_learning.losses.ContrastivLoss", "loss")
    with pytest.raises(ConfigError, match="has no c_f"):  # an imported module, not a class
        find("pytorch_metric_learning.losses.c_f", "loss")


@pytest.mark.parametrize(
    "extra", [{"_partial_": True}, {"_args_": ["x"]}, {"chunk": {"_target_": "os.getcwd"}}, {"a": [[{"_target_": 3}]]}]
)
def test_everything_inside_is_looked_at_before_anything_is_made(extra, monkeypatch):
    made = []
    monkeypatch.setattr(relaxations.Sigmoid, "__post_init__", lambda self: made.append(self))
    with pytest.raises(ConfigError):
        make({**SOFT, **extra}, slot="ranks")
    assert made == []
    with pytest.raises(ConfigError, match="needs _target_"):
        make({"tau": 3}, slot="loss")


def test_no_module_is_imported_for_a_name_that_is_refused(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for slot in SLOTS:
        with pytest.raises(ConfigError):
            make({"_target_": "evil_module.Class"}, slot=slot)
    assert "evil_module" not in sys.modules and not (tmp_path / "ran").exists()


def test_an_error_of_what_is_made_names_the_file_it_stands_in():
    node = {"_target_": "rankgrad.ranks.relaxations.Sigmoid", "tau": -1}
    with pytest.raises(ValueError, match=r"^tau is a temperature"):
        make(node, slot="step")
    with pytest.raises(ConfigError, match=r"^model.pt: step: tau is a temperature"):
        make(node, slot="step", where="model.pt: step")
    with pytest.raises(TypeError, match="unexpected keyword argument 'ta'"):
        make({"_target_": "rankgrad.ranks.relaxations.Sigmoid", "ta": 1}, slot="step")


# -------------------------------------------------------------------------------------------------------------- trust

MINE = """
import os
from torch import nn
from rankgrad.ranks.relaxations import Sigmoid

class Own(nn.Module):
    def __init__(self, part=None, metric="cosine"):
        super().__init__()
        self.part, self.metric = part, metric

def one(above):
    return above

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine_to_trust").mkdir()
    (tmp_path / "mine_to_trust" / "__init__.py").write_text("from .inner import Own\n")
    (tmp_path / "mine_to_trust" / "inner.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("mine_to_trust")]:
        del sys.modules[name]


def test_a_trusted_package_s_own_classes_may_be_named_and_hold_anything_listed(mine):
    node = {
        "_target_": "mine_to_trust.inner.Own",
        "part": {"_target_": "rankgrad.ranks.relaxations.Sigmoid", "tau": 2.0},
    }
    with pytest.raises(ConfigError, match="is no loss of rankgrad"):
        make(node, slot="loss")
    loss = make(node, slot="loss", trust=("mine_to_trust",))
    assert type(loss).__name__ == "Own" and loss.part == relaxations.Sigmoid(2.0) and loss.metric == "cosine"
    assert named({"_target_": "mine_to_trust.Own"}, slot="loss", trust=("mine_to_trust",)) is type(loss)
    given = {"_target_": "rankgrad.losses.RankLoss", "ranks": SOFT, "metric": "mine_to_trust.inner.one"}
    assert make(given, slot="loss", trust=("mine_to_trust",)).metric(torch.ones(1)) == 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mine_to_trust.inner.os.system", "is from posix and not from mine_to_trust"),
        ("mine_to_trust.inner.Sigmoid", "is from rankgrad.ranks.relaxations and not from mine_to_trust"),
        ("mine_to_trust.inner.number", "which is not a class or function"),
        ("mine_to_trust.inner.Missing", "which is not a class or function"),
        ("mine_to_trust.Own.__init__.__globals__", "which is not the name of a class"),
        ("mine_to_trust_too.Own", "which is no loss of rankgrad"),
        ("os.system", "which is no loss of rankgrad"),
    ],
)
def test_a_trusted_package_vouches_for_itself_alone(mine, target, message):
    with pytest.raises(ConfigError, match=message):
        make({"_target_": target}, slot="loss", trust=("mine_to_trust",))


def test_a_trusted_package_that_is_not_there_is_named():
    check({"_target_": "not_installed_anywhere.Own"}, "loss", trust=("not_installed_anywhere",))
    with pytest.raises(ConfigError, match="is not_installed_anywhere on PYTHONPATH"):
        make({"_target_": "not_installed_anywhere.Own"}, slot="loss", trust=("not_installed_anywhere",))


def test_only_a_package_of_one_s_own_can_be_trusted():
    assert packages(None) == () and packages("a") == ("a",) and packages(["a.b", "c"]) == ("a.b", "c")
    for wrong in (
        "os",
        "torch",
        "builtins",
        "numpy.lib",
        "subprocess",
        "rankgrad",
        ["mine", "sys"],
        "a b",
        "",
        3,
        [None],
    ):
        with pytest.raises(ConfigError, match="trust must be the package"):
            packages(wrong)
