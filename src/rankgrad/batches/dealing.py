"""Draws hands of cards, so that each card comes about equally often: the classes of the batches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def hands(cards: int, count: int, size: int, rng: np.random.RandomState) -> IntArray:
    """[hand, size] of cards 0 .. cards - 1. If size > cards, each card is in a hand about equally often."""
    decks, rest = divmod(size, cards) if size > cards else (0, size)
    parts = [np.tile(np.arange(cards), (count, decks))]
    if rest:
        parts.append(deal(cards, np.full(count, rest), rng).reshape(count, rest))
    return np.concatenate(parts, axis=1)


def deal(cards: int, sizes: IntArray, rng: np.random.RandomState) -> IntArray:
    """Hands of cards 0 .. cards - 1, concatenated. No hand holds a card twice, and all cards come about equally often.

    Whole decks are dealt one after the other. If the old deck does not fill a hand, the hand takes the first cards of
    the new deck that it does not hold yet. The cards that it skips stay in the new deck.

    Args:
        cards: size of the deck.
        sizes: [hand] size of each hand, 1 .. cards.
        rng: shuffles the decks.
    """
    ends = np.cumsum(sizes)
    needed = int(ends[-1]) if len(ends) else 0
    dealt = np.empty(needed + cards, dtype=np.int64)
    have = 0
    while have < needed:
        deck = rng.permutation(cards)
        hand = int(np.searchsorted(ends, have, side="right"))  # the first hand that is not full
        held = have - int(ends[hand] - sizes[hand])
        if held:
            in_hand = np.isin(deck, dealt[have - held : have])
            first = np.flatnonzero(~in_hand)[: int(sizes[hand]) - held]
            deck = np.concatenate([deck[first], np.delete(deck, first)])
        dealt[have : have + cards] = deck
        have += cards
    return dealt[:needed]
