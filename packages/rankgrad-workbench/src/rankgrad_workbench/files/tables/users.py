"""Tables that say which user had which item, of which no data set here is made."""

from __future__ import annotations

import re
from collections.abc import Iterable

USERS = {"user", "userid", "customer", "visitor", "session", "reviewer", "uid", "member"}
ITEMS = {"item", "itemid", "movie", "product", "asin", "book", "isbn", "song", "track", "artist", "article", "iid"}
FEW = 6  # columns of a table of users and items; one with more has features
INTERACTIONS = "Rows that say which user had which item are for a recommender: see docs/recommenders.md"


def are_interactions(columns: Iterable[str]) -> bool:
    """Whether a table says which user had which item.

    >>> are_interactions(["userId", "movieId", "rating"]), are_interactions(["item", "label"])
    (True, False)
    """
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z]+", " ", column).casefold().split() for column in columns]
    return len(words) <= FEW and all(any(not of.isdisjoint(parts) for parts in words) for of in (USERS, ITEMS))
