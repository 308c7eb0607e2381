"""`JSONReport`: what reports of evaluations share. They are written as JSON, and checked where they are read back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from ..common.files import AGAIN, integer, read_text

Self = TypeVar("Self", bound="JSONReport")

NUMBERS: Any = {str: float}
#: A paired difference of two systems, as `asdict` writes it.
DIFFERENCE: Any = {
    **{"run": str, "other": str, "metric": str, "mean": float, "low": float, "high": float},
    **{"p": (float, None), "corrected": (float, None), "better": int, "worse": int},
}


@dataclass(frozen=True, eq=False)
class JSONReport:
    """Base of a report, which adds counts: dict[str, int], settings: dict[str, Any] and notes: tuple[str, ...].

    Attributes:
        values: metric -> value.
        intervals: metric -> (low, high).
        per_query: metric -> [query] float64. NaN is written as null.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_query: dict[str, npt.NDArray[Any]]

    kind: ClassVar[str] = "a report"  # for messages
    shapes: ClassVar[Mapping[str, Any]] = {  # name of a part -> what `fits` needs
        **{"values": NUMBERS, "intervals": {str: [float]}, "per_query": {str: [(float, None)]}},
        **{"counts": NUMBERS, "settings": {}, "notes": [str]},
    }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as JSON, also written to `path` if given. `from_json` reads exactly the same report."""
        text = json.dumps(asdict(self), default=plain, allow_nan=False)
        if path is not None:
            # a reader finds the old file or the whole new one
            new = Path(path).with_name(f".{Path(path).name}.{os.getpid()}.tmp")
            try:
                new.write_text(text + "\n", encoding="utf-8")
                os.replace(new, path)
            finally:
                new.unlink(missing_ok=True)
        return text

    @classmethod
    def from_json(cls: type[Self], source: str | os.PathLike[str]) -> Self:
        """Read a report from the text of `to_json` or from a file.

        Args:
            source: JSON text (begins with a brace) or a path.

        Raises:
            ValueError: this is not a report.
        """
        inline = isinstance(source, str) and source.lstrip().startswith("{")
        try:
            content = json.loads(
                str(source) if inline else read_text(Path(source)),
                parse_int=integer,
                parse_float=_finite,
                parse_constant=_finite,
            )
            wanted = {each.name for each in fields(cls)}
            if not isinstance(content, dict) or set(content) != wanted:
                keys = sorted(content) if isinstance(content, dict) else type(content).__name__
                raise ValueError(f"needed the keys {sorted(wanted)}, got {keys}")
            wrong = [name for name, shape in cls.shapes.items() if not fits(content[name], shape)]
            wrong = wrong or [name for name, good in cls._fitting(content).items() if not good]
            if wrong:
                raise ValueError(f"{', '.join(wrong)} not as to_json wrote them")
            return cls(**cls._restored(content))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:  # also for text not in UTF-8
            where = "the text" if inline else source
            raise ValueError(f"{where} is not {cls.kind}, or it is damaged: {error}. {AGAIN}") from None

    @classmethod
    def _fitting(cls, content: dict[str, Any]) -> dict[str, bool]:
        """Name of a part -> whether it fits the other parts. The shapes of all are right."""
        return {"intervals": all(len(around) == 2 for around in content["intervals"].values())}

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> dict[str, Any]:
        """The fields, with arrays and tuples in the place of lists."""
        return {
            **content,
            "intervals": {name: (low, high) for name, (low, high) in content["intervals"].items()},
            "per_query": {name: np.asarray(v, dtype=np.float64) for name, v in content["per_query"].items()},
            "notes": tuple(content["notes"]),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JSONReport) and type(self) is type(other) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # holds arrays


def _finite(text: str) -> float:
    """A number of a report, which holds no NaN and no infinity."""
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is not a finite number")
    return float(text)


def fits(value: Any, shape: Any) -> bool:
    """Whether a value from a file has a shape, so that what reads it finds what it needs.

    Args:
        value: from json.
        shape: a type (float takes any number); None for null; a tuple of shapes, one of which must fit; [shape] for a
            list; {name: shape} for an object with these names, where `str` as a name stands for all others.

    >>> fits([{"name": "a", "AP": 1}], [{"name": str, str: (float, None)}]), fits([None], [{"name": str}])
    (True, False)
    """
    if isinstance(shape, tuple):
        return any(fits(value, each) for each in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(each, shape[0]) for each in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict) or not {name for name in shape if name is not str} <= value.keys():
            return False
        return all(fits(each, shape.get(name, shape.get(str, object))) for name, each in value.items())
    if shape is None or isinstance(value, bool):
        return value is shape or shape in (bool, object)
    return isinstance(value, (int, float) if shape is float else shape)


def plain(value: object) -> object:
    """A value that json cannot write, as one that it can."""
    if isinstance(value, np.ndarray):
        values: list[Any] = value.tolist()
        return [None if each != each else each for each in values]
    raise TypeError(f"a report holds plain values; got {type(value).__name__}")
