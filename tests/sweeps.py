"""Groups of losses that behave alike. Each loss is asked, so a new loss joins its groups by itself."""

import torch

from rankgrad.losses import LOSSES, RetrievalLoss


def _counts_a_query_without_relevant_items(kind: type[RetrievalLoss]) -> bool:
    loss = kind()
    loss.from_scores(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    return bool(loss.stats["counted"].all())


#: Losses that have something to say about a query without relevant items: calibration, and losses that contain it.
CALIBRATED = [name for name, kind in LOSSES.items() if _counts_a_query_without_relevant_items(kind)]
#: Losses in which what a query costs depends on the other queries: thresholds, or averages, are global.
GLOBAL = [name for name, kind in LOSSES.items() if not kind().separate]
#: Losses with a state that follows the scores.
ADAPTIVE = [name for name, kind in LOSSES.items() if kind().state_dict()]
