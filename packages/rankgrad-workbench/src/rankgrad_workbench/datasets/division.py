"""Training, validation and test splits: their names, and the division of whole classes for data without splits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rankgrad.common.checks import setting

# Accepted names of splits, for folders and columns; case does not matter. The first name of each is preferred.
CALLED = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "vali", "dev"),  # LETOR: vali
    "test": ("test", "testing"),
}


def split_called(name: str) -> str:
    """The split (train, val or test) for a name such as "Validation"; "" for any other name.

    >>> [split_called(name) for name in ("Train", "VALIDATION", "cat")]
    ['train', 'val', '']
    """
    return next((split for split, names in CALLED.items() if name.strip().casefold() in names), "")


def need_fractions(test: float, val: float) -> None:
    """Raise unless two fractions of the classes are >= 0 with a sum <= 1.

    Raises:
        ValueError: naming both.
    """
    numbers = all(isinstance(share, (int, float)) and not isinstance(share, bool) for share in (test, val))
    if not (numbers and 0 <= test <= 1 and 0 <= val <= 1 and test + val <= 1):
        raise ValueError(
            f"{setting('test_fraction')} and {setting('val_fraction')} are fractions of the classes, >= 0 with a sum "
            f"<= 1; got {test!r} and {val!r}"
        )


def divide(
    names: Iterable[str],
    test_fraction: float,
    val_fraction: float,
    seed: int,
    yourself: str = "a column split with train and test",
) -> dict[str, str]:
    """Split of each class. Classes are sorted by a hash of (seed, name): the first are test, then val, the rest train.

    If a class is added later, nearly all others keep their split.

    Args:
        names: of the classes.
        test_fraction: fraction of the classes, 0 .. 1.
        val_fraction: fraction of the classes, 0 .. 1.
        seed: of the order.
        yourself: how a user can divide the data instead, for the message.

    Raises:
        ValueError: a requested split would have fewer than two classes.

    >>> divide(["a", "b", "c", "d"], 0.5, 0.0, seed=0)
    {'c': 'test', 'b': 'test', 'd': 'train', 'a': 'train'}
    """
    # a name that is not UTF-8 is hashed by its bytes
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest())
    tests, vals = round(test_fraction * len(order)), round(val_fraction * len(order))
    splits = ["test"] * tests + ["val"] * vals + ["train"] * (len(order) - tests - vals)
    shares = {"train": 1 - test_fraction - val_fraction, "val": val_fraction, "test": test_fraction}
    few = next((split for split, share in shares.items() if share > 1e-9 and splits.count(split) < 2), None)
    change = setting("test_fraction") + (f" or {setting('val_fraction')}" if val_fraction else "")
    if few is not None and test_fraction + val_fraction > 0:
        raise ValueError(
            f"there are {len(order)} class(es) in all, and {few} would get {splits.count(few)}; ranking needs at least "
            f"two in each split. Add classes, change {change}, or divide the data yourself: {yourself}"
        )
    return dict(zip(order, splits, strict=False))
