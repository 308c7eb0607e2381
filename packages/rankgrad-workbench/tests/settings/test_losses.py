"""Every loss can be had from settings, with every option."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest
import torch
from hydra.utils import get_class, get_object
from omegaconf import OmegaConf

from rankgrad import losses
from rankgrad.losses.base import Common
from rankgrad_workbench.settings import ConfigError, compose, make, options

LOSSES = options("loss")


def settings_of(name: str) -> dict[str, Any]:
    node = OmegaConf.to_container(compose([f"loss={name}"]).loss, resolve=True)
    assert isinstance(node, dict)
    return node


def test_every_loss_of_the_library_has_a_file_of_its_name():
    assert {name for name in losses.LOSSES if name not in LOSSES} == set()
    for name, kind in losses.LOSSES.items():
        assert get_class(settings_of(name)["_target_"]) is kind


@pytest.mark.parametrize("name", sorted(losses.LOSSES))
def test_a_loss_file_holds_exactly_the_options_of_its_class_with_their_defaults(name):
    given = settings_of(name)
    kind = get_class(given.pop("_target_"))
    known = {
        p.name: list(p.default) if isinstance(p.default, tuple) else p.default
        for p in inspect.signature(kind).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name not in Common.__annotations__
    }
    assert given == {**known, "include_self": False}


def nodes(node: Any) -> list[dict[str, Any]]:
    """All mappings with a class to make, at any depth."""
    if not isinstance(node, dict):
        return []
    return ([node] if "_target_" in node else []) + [found for child in node.values() for found in nodes(child)]


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in losses.LOSSES])
def test_the_files_of_baselines_name_options_that_exist(name):
    if "/" in name:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[name.split("/")[0]])
    for node in nodes(settings_of(name)):
        known = inspect.signature(get_object(node["_target_"])).parameters
        takes_more = any(p.kind is p.VAR_KEYWORD for p in known.values())
        assert {key for key in node if key != "_target_" and key not in known} == set() or takes_more
        needed = {p.name for p in known.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
        assert needed <= set(node)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_file_makes_a_loss_that_trains_for_a_step(name):
    if "/" in name:
        pytest.importorskip({"pml": "pytorch_metric_learning", "st": "sentence_transformers"}[name.split("/")[0]])
    config = compose([f"loss={name}"])
    config.derived.num_classes, config.derived.embedding_size = 4, 6
    loss = make(config.loss, slot="loss")
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 6, generator=g).repeat_interleave(4, 0)
    embeddings = (centres + 1.5 * torch.randn(16, 6, generator=g)).requires_grad_()
    torch.manual_seed(0)  # distance-weighted sampling draws from torch's generator: let it draw the same twice
    value = loss(embeddings, torch.arange(4).repeat_interleave(4))
    value.backward()
    assert value.shape == () and value > 0
    assert embeddings.grad is not None and embeddings.grad.isfinite().all() and embeddings.grad.abs().sum() > 0
    step = embeddings.detach() - 0.02 * embeddings.grad / embeddings.grad.norm()
    if name in ("st/batch_all_triplet", "pml/triplet"):
        return  # its mean is over the triplets that cost something, and a step may make the cheap ones free
    # the gradient of a blackbox loss is no derivative: its step may change nothing
    torch.manual_seed(0)
    after = loss(step, torch.arange(4).repeat_interleave(4))
    assert after <= value if name.startswith("rambo") else after < value


def test_options_that_all_losses_share_can_be_added():
    config = compose(["loss=pnp", "+loss.normalize=false", "+loss.check_finite=false"])
    loss = make(config.loss, slot="loss")
    assert loss.normalize is False and loss.check_finite is False


OWN = """
from torch import nn

class MyLoss(nn.Module):
    def __init__(self, margin=0.2, needed=None):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings, labels, ref_emb=None, ref_labels=None, **more):
        return (embeddings @ embeddings.T).clamp(min=self.margin).mean()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_of_a_test"
    sys.modules.pop("own_of_a_test", None)


def test_a_class_of_ones_own_is_named_like_any_loss_and_has_its_arguments_as_settings(own):
    config = compose([f"loss={own}.MyLoss", f"trust={own}", "loss.margin=0.5"])
    assert config.loss == {"_target_": f"{own}.MyLoss", "margin": 0.5, "needed": None}
    assert make(config.loss, slot="loss", trust=(own,)).margin == 0.5
    both = compose([f"loss={own}.MyLoss+supap", f"trust=[{own}]", "loss.losses.MyLoss.margin=0.5"]).loss
    assert both.losses.MyLoss.margin == 0.5 and list(both.weights) == ["MyLoss", "supap"]
    with pytest.raises(ConfigError, match=r"unknown setting 'loss.margn'; did you mean 'loss.margin'"):
        compose([f"loss={own}.MyLoss", f"trust={own}", "loss.margn=0.5"])
    with pytest.raises(ConfigError, match="has no MyLos|is not a class"):
        compose([f"loss={own}.MyLos", f"trust={own}"])


def test_without_trust_the_message_says_the_way(own):
    with pytest.raises(ConfigError) as error:
        compose([f"loss={own}.MyLoss"])
    assert f"loss={own}.MyLoss trust={own};" in str(error.value) and "docs/plugins.md" in str(error.value)
    assert "own_of_a_test" not in sys.modules
