"""Any step with any metric: what each composition costs on one batch, and how far its gradient reaches.

    python examples/compose_a_loss.py

Prints a table: rows are steps for the irrelevant items, columns what is read off the ranks. An entry is the loss, and
in brackets the share of relevant items that get a gradient. Most of these have no paper.
"""

from __future__ import annotations

from functools import partial

import torch

from rankgrad import losses, metrics, penalties, ranks, relaxations

STEPS = {
    "H (exact)": relaxations.Heaviside(),
    "sigmoid": relaxations.Sigmoid(0.01),
    "H^-": relaxations.SupStep(),
    "exp": relaxations.Exponential(0.05),
    "softplus": relaxations.Softplus(0.02),
    "yours: atan": lambda diff: 0.5 + torch.atan(diff / 0.02) / torch.pi,
}
READINGS = {
    "AP": {"metric": metrics.average_precision},
    "NDCG": {"metric": metrics.ndcg},
    "MRR": {"metric": metrics.reciprocal_rank},
    "R@4 (soft)": {"metric": partial(metrics.soft_recall_at_k, k=4)},
    "log": {"penalty": penalties.Log()},
    "PNP-Dq": {"penalty": penalties.Power(1.0)},
}


def main() -> None:
    """Print the table."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(16).repeat_interleave(4)
    centres = torch.randn(16, 32, generator=generator)
    batch = centres[labels] + 1.2 * torch.randn(64, 32, generator=generator)
    relevant = (labels[:, None] == labels) & ~torch.eye(64, dtype=torch.bool)
    print(" " * 12, *(f"{name:>13}" for name in READINGS))
    for step_name, step in STEPS.items():
        cells = []
        for reading in READINGS.values():
            loss = losses.RankLoss(ranks.Soft(pos=relaxations.Heaviside(), neg=step), **reading)
            unit = torch.nn.functional.normalize(batch, dim=1)
            scores = (unit @ unit.T).requires_grad_()
            value = loss.from_scores(scores, relevant, valid=~torch.eye(64, dtype=torch.bool))
            value.backward()
            assert scores.grad is not None
            reached = (scores.grad[relevant].abs() > 1e-6).float().mean()
            cells.append(f"{value.item():.3f} ({100 * reached:3.0f} %)")
        print(f"{step_name:12}", *(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    main()
