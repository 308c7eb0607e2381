"""Losses that are recommended from scratch learn where the data are hard, and do not make all embeddings alike."""

from __future__ import annotations

import pytest
import torch
from marks import slow_unless
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad.losses import AdaptiveROADMAPLoss, InfoNCELoss, RetrievalLoss, SupAPLoss

RECOMMENDED = {
    "adaptive_roadmap": AdaptiveROADMAPLoss,
    "info_nce": lambda: InfoNCELoss(pull=0.9),
    "supap": SupAPLoss,
}
CLASSES, EACH, DIM = 8, 8, 32
LABELS = torch.arange(CLASSES).repeat_interleave(EACH)


@pytest.mark.parametrize("name", RECOMMENDED)
@pytest.mark.parametrize("spread", [0.001, 0.01, 0.03])
def test_where_scores_tell_nothing_a_step_does_not_raise_them_all(name, spread):
    generator = torch.Generator().manual_seed(0)
    scores = 0.9 + spread * torch.randn(64, 64, generator=generator, dtype=torch.float64)
    scores.requires_grad_()
    relevant = LABELS.unsqueeze(1) == LABELS
    RECOMMENDED[name]().from_scores(scores, relevant, ~torch.eye(64, dtype=torch.bool)).backward()
    assert scores.grad.sum() >= -1e-9  # a descent step changes the mean score by minus this
    assert scores.grad[relevant].sum() < 0 < scores.grad[~relevant].sum()


def test_without_a_margin_between_its_thresholds_the_default_loss_would():
    scores = 0.9 + 0.01 * torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores.requires_grad_()
    loss = AdaptiveROADMAPLoss()
    loss.calibration.margin = -1.0
    loss.from_scores(scores, LABELS.unsqueeze(1) == LABELS, ~torch.eye(64, dtype=torch.bool)).backward()
    assert scores.grad.sum() < -0.3


def trained(loss: RetrievalLoss, noise: float, seed: int) -> tuple[Tensor, Tensor, float]:
    """Share of ordered pairs of rows nobody trained on before and after 100 steps; then the mean cosine of classes."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, DIM, generator=generator, dtype=torch.float64)
    rest = LABELS.unsqueeze(1) != LABELS
    found = ~rest & ~torch.eye(len(LABELS), dtype=torch.bool)

    def drawn() -> Tensor:
        return centres[LABELS] + noise * torch.randn(len(LABELS), DIM, generator=generator, dtype=torch.float64)

    def scores(rows: Tensor) -> Tensor:
        unit = F.normalize(network(rows), dim=1)
        return unit @ unit.T

    def ordered() -> Tensor:
        with torch.no_grad():
            cosines = scores(unseen)
        return (cosines[found].unsqueeze(1) > cosines[rest]).double().mean()

    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()).double()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2.5e-3)
    unseen = drawn()
    before = ordered()
    for _ in range(100):
        optimizer.zero_grad()
        loss(network(drawn()), LABELS).backward()
        optimizer.step()
    return before, ordered(), float(scores(unseen)[rest].mean().detach())


@pytest.mark.parametrize("name", slow_unless({"info_nce"}, RECOMMENDED))
def test_a_recommended_loss_learns_faint_classes_from_scratch(name):
    found = [trained(RECOMMENDED[name](), 3.0, seed)[:2] for seed in range(2)]
    gains = [float(after - before) for before, after in found]
    assert min(gains) > 0.05 and sum(gains) / 2 > 0.1, gains


def test_labels_that_say_nothing_do_not_make_all_embeddings_alike():
    assert trained(AdaptiveROADMAPLoss(), 1e3, 0)[2] < 0.8  # .98 without the margin
