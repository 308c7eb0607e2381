"""Many short texts in one buffer of bytes: names of queries and documents, and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SPARE = 32  # zero bytes after the last text, so that 8 bytes can be read from every start
WIDE = 64  # up to this length in bytes numpy sorts the texts as a matrix; one long text would make it too large
_LOW_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)
_ODD = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_EXACT = 2**53  # all integers up to this one are exact in float64
_POWERS = 10.0 ** np.arange(23)  # these powers of ten are exact, too


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Texts in UTF-8, one after the other or scattered in a buffer.

    Args:
        buffer: [byte] uint8, with `SPARE` zero bytes at its end.
        start: [text] int64, where each text begins.
        length: [text] int64, bytes of each text.

    >>> texts = TextColumn.of(["d1", "d20", "d20"])
    >>> len(texts), texts.words([1]), texts.repeated().tolist()
    (3, ['d20'], [False, False, True])
    """

    buffer: Array
    start: Array
    length: Array

    @classmethod
    def of(cls, words: Sequence[Any]) -> TextColumn:
        """Texts from strings, and from integers in decimal notation.

        Raises:
            TypeError: a value is neither a string nor an integer.
        """
        try:
            joined = "".join(words)
        except TypeError:
            odd = next((word for word in words if isinstance(word, bool) or not isinstance(word, _NAMES)), None)
            if odd is not None:
                raise TypeError(f"names of queries and documents must be strings or integers; got {odd!r}") from None
            words = [str(word) for word in words]
            joined = "".join(words)
        raw = joined.encode("utf-8", "surrogatepass")
        each = words if len(raw) == len(joined) else [word.encode("utf-8", "surrogatepass") for word in words]
        return cls._one_after_another(raw, np.fromiter(map(len, each), np.int64, len(words)))

    @classmethod
    def of_integers(cls, values: Array) -> TextColumn:
        """Texts from integers, in decimal notation.

        >>> TextColumn.of_integers(np.array([0, -12, 345])).words()
        ['0', '-12', '345']
        """
        rest = values.astype(np.uint64) if values.dtype.kind == "u" else np.abs(values.astype(np.int64)).view(np.uint64)
        width = len(str(int(rest.max(initial=0)))) + 1
        cells = np.zeros((len(values), width), np.uint8)
        length = np.ones(len(values), np.int64)
        for column in range(width - 1, 0, -1):
            rest, digit = np.divmod(rest, np.uint64(10))
            cells[:, column] = digit + np.uint64(ord("0"))
            length += rest > 0
        negative = np.flatnonzero(values < 0)
        cells[negative, width - 1 - length[negative]] = ord("-")
        length[negative] += 1
        buffer = np.concatenate([cells.ravel(), np.zeros(SPARE, np.uint8)])
        return cls(buffer, np.arange(1, len(values) + 1) * width - length, length)

    @classmethod
    def joined(cls, parts: Sequence[TextColumn]) -> TextColumn:
        """The texts of several columns, in one buffer."""
        before = np.cumsum([0, *(len(part.buffer) for part in parts)])
        start = [part.start + offset for part, offset in zip(parts, before[:-1], strict=True)]
        return cls(
            np.concatenate([part.buffer for part in parts]),
            np.concatenate(start),
            np.concatenate([part.length for part in parts]),
        )

    @classmethod
    def _one_after_another(cls, raw: bytes, length: Array) -> TextColumn:
        buffer = np.concatenate([np.frombuffer(raw, np.uint8), np.zeros(SPARE, np.uint8)])
        return cls(buffer, np.cumsum(length) - length, length)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Any) -> TextColumn:
        """Some of the texts, by indices, a mask or a slice. The buffer is shared."""
        return TextColumn(self.buffer, self.start[rows], self.length[rows])

    def packed(self) -> TextColumn:
        """The same texts in a new buffer, without gaps."""
        before = np.cumsum(self.length) - self.length
        raw = self.buffer[np.repeat(self.start - before, self.length) + np.arange(self.length.sum())]
        return TextColumn._one_after_another(raw.tobytes(), self.length)

    def words(self, rows: Any = slice(None)) -> list[str]:
        """Some of the texts as strings; bytes that are not UTF-8 are shown as escapes."""
        view = memoryview(self.buffer)  # type: ignore[arg-type]  # with Python 3.10 a buffer is no type
        ends = zip(self.start[rows].tolist(), self.length[rows].tolist(), strict=True)
        return [str(view[start : start + length], "utf-8", "backslashreplace") for start, length in ends]

    def places(self) -> Array:
        """[text] index of each text among the distinct texts, in the order of their bytes.

        >>> TextColumn.of(["d2", "d10", "d1", "d2"]).places().tolist()
        [2, 1, 0, 2]
        """
        width = int(self.length.max(initial=1))
        if width > WIDE:
            ends = zip(self.start, self.start + self.length, strict=True)
            words = [self.buffer[start:end].tobytes() for start, end in ends]
            place = {word: number for number, word in enumerate(sorted(set(words)))}
            return np.array([place[word] for word in words])
        column = np.arange(width)
        buffer = np.concatenate([self.buffer, np.zeros(width, np.uint8)])  # for a short text at the end of the buffer
        cells = buffer[self.start[:, None] + column]
        cells[column >= self.length[:, None]] = 0
        numbers: Array = np.unique(cells.view(f"S{width}").ravel(), return_inverse=True)[1]
        return numbers

    def keys(self, seed: int = 0) -> Array:
        """[text] uint64 hash, equal for equal texts. Two different texts have equal keys with probability 2^-64.

        Args:
            seed: another seed gives other keys.
        """
        words = self._words_of_8_bytes()
        key = mixed((self.length + (seed << 32)).astype(np.uint64))
        for at in range(0, int(self.length.max(initial=0)), 8):
            rows: Any = slice(None) if at == 0 else np.flatnonzero(self.length > at)
            inside = _LOW_BYTES[np.minimum(self.length[rows] - at, 8)]
            key[rows] = mixed(key[rows] ^ (words[self.start[rows] + at] & inside))
        return key

    def equal(self, other: TextColumn) -> Array:
        """[text] bool, whether each text equals the text of `other` at the same index."""
        same: Array = self.length == other.length
        mine, theirs = self._words_of_8_bytes(), other._words_of_8_bytes()
        for at in range(0, int(self.length.max(initial=0)), 8):
            rows = np.flatnonzero(same & (self.length > at))
            inside = _LOW_BYTES[np.minimum(self.length[rows] - at, 8)]
            differ = (mine[self.start[rows] + at] ^ theirs[other.start[rows] + at]) & inside
            same[rows[differ != 0]] = False
        return same

    def repeated(self) -> Array:
        """[text] bool, whether each text equals the previous text."""
        repeated = np.zeros(len(self), bool)
        repeated[1:] = self.take(slice(1, None)).equal(self.take(slice(-1)))
        return repeated

    def numbers(self) -> Array:
        """[text] float64 value of each text in decimal notation, correctly rounded; NaN if it is not a number.

        >>> TextColumn.of(["1", "-2.50", "1e-3", "12.34.5", "twelve", ""]).numbers().tolist()
        [1.0, -2.5, 0.001, nan, nan, nan]
        """
        first = self.buffer[self.start]
        signed = (self.length > 0) & ((first == ord("-")) | (first == ord("+")))
        start, length = self.start + signed, self.length - signed
        digits = np.zeros(len(self), np.int64)
        decimals = np.zeros(len(self), np.int64)
        behind = np.zeros(len(self), bool)  # after the decimal point
        # 18 digits fit into a 64-bit integer; Python's float reads all other texts below
        plain = (length > 0) & (length <= 18)
        for at in range(int(length[plain].max(initial=0))):
            char = self.buffer[start + np.minimum(at, length)]
            inside = at < length
            digit = char - np.uint8(ord("0"))
            counts, point = inside & (digit < 10), inside & (char == ord("."))
            plain &= counts | (point & ~behind) | ~inside
            digits *= np.where(counts, 10, 1)
            digits += np.where(counts, digit, 0)
            decimals += counts & behind
            behind |= point
        plain &= (digits < _EXACT) & (length > behind)
        # the division of two exact numbers is rounded only once
        values = digits / _POWERS[np.where(plain, decimals, 0)]
        values[self.buffer[self.start] == ord("-")] *= -1
        for row in np.flatnonzero(~plain).tolist():
            values[row] = _number(self.words([row])[0])
        return values

    def _words_of_8_bytes(self) -> Array:
        """[byte] the 8 bytes from each position on as one little-endian number, without copying."""
        words: Array = np.ndarray((len(self.buffer) - 7,), "<u8", self.buffer, strides=(1,))
        return words


_NAMES = (str, int, np.integer)


def mixed(values: Array) -> Array:
    """[value] uint64 in which every bit depends on all bits of the value. Different values stay different.

    The last step of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    """
    values = (values ^ (values >> np.uint64(30))) * _ODD[0]
    values = (values ^ (values >> np.uint64(27))) * _ODD[1]
    mixed_bits: Array = values ^ (values >> np.uint64(31))
    return mixed_bits


def _number(text: str) -> float:
    try:
        return float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        return float("nan")
