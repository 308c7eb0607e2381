r"""Scores and relevance -> `Ranks`: exactly, relaxed, or exactly forward and perturbed backward (blackbox).

All three answer the same question for each relevant item i of a query: how many items of at least its gain stand above
it (`above_pos`), and how many of less (`above_neg`). They differ in what "above" means and in its gradient.

Layout (`lists`). Queries have different numbers of relevant items (p). Their scores are put into a rectangle `own`
[query, slot], slot < max p, and the scores of the irrelevant valid items into `rest` [query, item]. An absent entry is
-inf: every step is 0 there. So nothing of size pairs x items is ever stored: it is formed in blocks and thrown away.
"""

from __future__ import annotations

from .blackbox import Blackbox, blackbox_rank
from .exact import Ties, exact_ranks
from .lists import Lists, check_lists, computed
from .soft import Soft, soft_ranks

__all__ = [
    "Blackbox",
    "Lists",
    "Soft",
    "Ties",
    "blackbox_rank",
    "check_lists",
    "computed",
    "exact_ranks",
    "soft_ranks",
]
