r"""Scores and relevance -> `Ranks`: exact, relaxed, or blackbox (exact forward, perturbed backward).

All three count, for each relevant item i of a query, the items above it: those of at least its gain (`above_pos`) and
those of less gain (`above_neg`). They differ in the definition of "above" and in its gradient.

Layout (`lists`): queries have different numbers of relevant items (p). The scores of the relevant items are a rectangle
`own` [query, slot], slot < max p. The scores of the irrelevant valid items are `rest` [query, item]. An absent entry is
-inf, where every step is 0. Nothing of size pairs x items is stored: it is computed in blocks.
"""

from __future__ import annotations

from .blackbox import Blackbox, blackbox_rank
from .exact import Ties, exact_ranks
from .lists import Lists
from .lists import check_lists as check_lists
from .lists import computed as computed
from .soft import Soft, soft_ranks

__all__ = [
    "Blackbox",
    "Lists",
    "Soft",
    "Ties",
    "blackbox_rank",
    "exact_ranks",
    "soft_ranks",
]
