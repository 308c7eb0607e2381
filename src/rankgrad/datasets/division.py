"""Training, validation and test: what they may be called, and dividing whole classes where nobody has divided them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..checks import setting

# What splits may be called, in any capitals, as folders and in columns; the first of each is the name to prefer.
CALLED = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "vali", "dev"),  # LETOR: vali
    "test": ("test", "testing"),
}


def split_called(name: str) -> str:
    """The split that a name means; "": none.

    >>> [split_called(name) for name in ("Train", "VALIDATION", "cat")]
    ['train', 'val', '']
    """
    return next((split for split, names in CALLED.items() if name.strip().casefold() in names), "")


def need_fractions(test: float, val: float) -> None:
    """Raise unless two shares of the classes are shares.

    Raises:
        ValueError: naming both.
    """
    numbers = all(isinstance(share, (int, float)) and not isinstance(share, bool) for share in (test, val))
    if not (numbers and 0 <= test <= 1 and 0 <= val <= 1 and test + val <= 1):
        raise ValueError(
            f"{setting('test_fraction')} and {setting('val_fraction')} are shares of the classes, >= 0 with a sum "
            f"<= 1; got {test!r} and {val!r}"
        )


def divide(
    names: Iterable[str],
    test_fraction: float,
    val_fraction: float,
    seed: int,
    yourself: str = "a column split with train and test",
) -> dict[str, str]:
    """Split of each class: in the order of a hash of (seed, name), the first are test, the next val, the rest train.

    A class that is added later moves hardly any other class.

    Args:
        names: of the classes.
        test_fraction: of the classes.
        val_fraction: of the classes.
        seed: of the order.
        yourself: by what a user can divide the data instead, for the message.

    Raises:
        ValueError: there is one class, or none, for a split that is asked for.

    >>> divide(["a", "b", "c", "d"], 0.5, 0.0, seed=0)
    {'c': 'test', 'b': 'test', 'd': 'train', 'a': 'train'}
    """

    def place(name: str) -> bytes:
        # bytes of a name that is not UTF-8 count as they are
        return hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()

    order = sorted(names, key=place)
    tests, vals = round(test_fraction * len(order)), round(val_fraction * len(order))
    shares = {"train": 1 - test_fraction - val_fraction, "val": val_fraction, "test": test_fraction}
    counts = {"train": len(order) - tests - vals, "val": vals, "test": tests}
    few = [split for split, share in shares.items() if share > 1e-9 and counts[split] < 2]
    if few and test_fraction + val_fraction > 0:
        change = setting("test_fraction") + (f" or {setting('val_fraction')}" if val_fraction else "")
        raise ValueError(
            f"there {_classes(len(order))} in all, which leaves {counts[few[0]]} for {few[0]}; ranking needs at least "
            f"two in each split. Add classes, change {change}, or divide the data yourself: {yourself}"
        )
    splits = ["test"] * tests + ["val"] * vals + ["train"] * len(order)
    return dict(zip(order, splits, strict=False))


def _classes(count: int) -> str:
    return "is 1 class" if count == 1 else f"are {count} classes"
