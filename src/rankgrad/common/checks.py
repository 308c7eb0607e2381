"""Checks of arguments for all modules: integers, numbers, tensors from any container, and the closest known name.

Messages name an argument in the form in which the caller can type it (`setting`).

Only the checks that need torch import it. This takes seconds, and commands that only list names do not need it.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, Union

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
LONGEST_LIST = 240  # letters of a list of known names in a message
SUMMABLE = 1e300  # the sum of larger numbers may overflow
Numbers = Union["Tensor", npt.NDArray[Any], Sequence[Any]]  # "|" does not work with a name in quotes
Spelling = Callable[..., str]  # (argument[, value]) -> what the caller types to set it


def _in_python(name: str, *value: object) -> str:
    return "=".join([name, *map(repr, value)])


_spelling: ContextVar[Spelling] = ContextVar("spelling", default=_in_python)


def setting(name: str, *value: object) -> str:
    """An argument as the caller can type it: in Python, as a setting, or as an option of a command (see `spelled`).

    Every message that tells a user to set an argument uses this function.

    Args:
        name: name of the argument.
        value: value that the message suggests; without it, only the name.

    >>> setting("text", "sentence")
    "text='sentence'"
    """
    return _spelling.get()(name, *value)


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """A context in which messages use another spelling of arguments."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


@contextmanager
def renamed(**names: str) -> Iterator[None]:
    """A context in which messages use other names of arguments: those of the caller's own arguments.

    >>> with renamed(root="icons"):
    ...     print(setting("root", "DIR"))
    icons='DIR'
    """
    outer = _spelling.get()
    with spelled(lambda name, *value: outer(names.get(name, name), *value)):
        yield


def whole_number(value: object) -> int | None:
    """The value as an int if it is an integer of Python or numpy, or a tensor without dimensions; else None.

    >>> whole_number(np.int64(3)), whole_number(True), whole_number(2.0)
    (3, None, None)
    """
    # numpy and torch have their own booleans; torch, and numpy before 2, would accept them as 0 and 1
    if isinstance(value, (bool, np.bool_)) or str(getattr(value, "dtype", "")) == "torch.bool":
        return None
    try:
        return operator.index(value) if getattr(value, "ndim", 0) == 0 else None  # type: ignore[arg-type]  # the call tests it
    except (TypeError, ValueError, RuntimeError):
        return None


def integer(value: object, what: str, low: int | None = None, high: int | None = None) -> int:
    """The value as an int. It may be an integer of Python or numpy, or a tensor without dimensions; not True or 2.0.

    Args:
        value: the argument.
        what: beginning of the message: the argument and its meaning.
        low: smallest allowed value.
        high: largest allowed value.

    Raises:
        ValueError: the value is not an integer, or not in the range.

    >>> integer(3, "k counts items", low=1)
    3
    >>> integer(True, "k counts items", low=1)
    Traceback (most recent call last):
        ...
    ValueError: k counts items and must be an integer >= 1; got True
    """
    whole = whole_number(value)
    if whole is None or (low is not None and whole < low) or (high is not None and whole > high):
        allowed = {
            (False, False): "",
            (True, False): f" >= {low}",
            (False, True): f" <= {high}",
            (True, True): f" in {low} .. {high}",
        }[low is not None, high is not None]
        raise ValueError(f"{what} and must be an integer{allowed}; got {value!r}")
    return whole


def list_length(value: object, what: str) -> int:
    """The value as an int in 1 .. 2^63 - 1, which torch can compare with ranks.

    Args:
        value: the argument.
        what: beginning of the message: the argument and its meaning.

    Raises:
        ValueError: the value is not such an integer.

    >>> list_length(10**30, "k is a list length")
    Traceback (most recent call last):
        ...
    ValueError: k is a list length and must be an integer <= 9223372036854775807; got 1000000000000000000000000000000
    """
    return integer(integer(value, what, low=1), what, high=sys.maxsize)


def unmasked(value: T, name: str) -> T:
    """The value, which must have no masked element: the mask of an array of numpy or torch would be dropped.

    Args:
        value: the argument; lists are searched, too.
        name: its name in messages.

    Raises:
        ValueError: an element is masked.

    >>> unmasked(np.ma.masked_equal([1, -9], -9), "scores")
    Traceback (most recent call last):
        ...
    ValueError: scores has masked elements (1), whose hidden values would be used. Leave these rows out, or fill them: \
scores.filled(VALUE)
    """
    count = _masked(value)
    if count:
        filled = "to_tensor" if hasattr(value, "get_mask") else "filled"
        raise ValueError(
            f"{name} has masked elements ({count}), whose hidden values would be used. Leave these rows out, or fill "
            f"them: {name}.{filled}(VALUE)"
        )
    return value


def _masked(value: object) -> int:
    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(value).sum())
    if hasattr(value, "get_mask"):  # a MaskedTensor, whose mask is True for what is kept
        return int((~value.get_mask()).sum())
    return sum(map(_masked, value)) if isinstance(value, (list, tuple)) else 0


def no_missing(value: object, name: str) -> None:
    """Raise if a row has no value: None, NaN, or what pandas calls missing.

    Args:
        value: the argument, [row] or [row, column].
        name: its name in messages.

    Raises:
        ValueError: naming the rows.

    >>> no_missing([1, None, 3, None], "labels")
    Traceback (most recent call last):
        ...
    ValueError: labels has no value in 2 of 4 rows: 1, 3. Leave these rows out, or give them a value
    """
    array = np.asarray(value, dtype=None if hasattr(value, "dtype") else object)
    if array.dtype.kind not in "fO" or not array.size or not array.ndim:
        return
    known = ("NAType", "NaTType")  # of pandas, which is not imported for this check
    missing = [each is None or type(each).__name__ in known or each != each for each in array.ravel().tolist()]
    rows = np.flatnonzero(np.array(missing, dtype=bool).reshape(len(array), -1).any(1)).tolist()
    if rows:
        some = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
        raise ValueError(
            f"{name} has no value in {len(rows)} of {len(array)} rows: {some}. Leave these rows out, or give them a "
            "value"
        )


def tensor(value: Numbers, name: str) -> Tensor:
    """Numbers as a tensor, from tensors (unchanged), numpy arrays and (nested) lists.

    Nothing is rounded: an array keeps its precision, and a list of Python floats becomes float64.

    Args:
        value: the argument.
        name: its name in messages.

    Raises:
        TypeError: the value holds strings, objects, or numbers that torch does not have; or it is a tensor that is not
            `dense`.
        ValueError: the rows differ in length, or an element of a masked array is masked.

    >>> tensor([[0.1, 0.2]], "scores")
    tensor([[0.1000, 0.2000]], dtype=torch.float64)
    """
    import torch

    if isinstance(value, torch.Tensor):
        return dense(value, name)
    unmasked(value, name)
    try:
        # torch has no read-only memory, so read-only memory (a mapped file) is copied
        array = np.require(value, requirements=["C", "W"])
    except ValueError:
        raise ValueError(f"{name} must have rows of equal length; got rows of different lengths") from None
    if array.dtype.kind == "O":
        no_missing(array, name)
    if array.dtype.kind == "V" and array.dtype.itemsize == 1:
        raise TypeError(
            f"{name} has numbers of one byte whose type numpy does not know, such as float8; got {array.dtype}. "
            "Convert them where they are made: astype(numpy.float32)"
        )
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.dtype == np.longdouble:
        raise TypeError(f"{name} must be numbers: a tensor, a numpy array or a list; got {array.dtype}")
    return torch.from_numpy(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))


def dense(value: object, name: str) -> Tensor:
    """The value, which must be a tensor that stores every element.

    Args:
        value: the argument.
        name: its name in messages.

    Raises:
        TypeError: this is no tensor, or a sparse, nested or meta tensor.

    >>> import torch
    >>> dense(torch.eye(2).to_sparse(), "scores")
    Traceback (most recent call last):
        ...
    TypeError: scores must be a dense tensor; got a tensor of layout torch.sparse_coo. Pass scores.to_dense()
    """
    import torch

    unmasked(value, name)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(value).__name__}. Pass torch.as_tensor({name})")
    if value.is_nested:
        raise TypeError(f"{name} must be a dense tensor; got a nested tensor. Pass rows of equal length")
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor; got a tensor of layout {value.layout}. Pass {name}.to_dense()")
    if value.is_meta:
        raise TypeError(f"{name} must be a tensor with values; got one on the device 'meta', which holds none")
    return value


def real_tensor(value: Numbers, name: str) -> Tensor:
    """`tensor`, but complex numbers are a TypeError: converting them to floats would drop their imaginary parts."""
    given = tensor(value, name)
    if given.is_complex():
        raise TypeError(f"{name} must be real numbers; got {given.dtype}")
    return given


def query_weights(weights: Numbers, counted: Tensor) -> Tensor:
    """Weights of queries as a float64 tensor [query].

    Args:
        weights: [query] 0 .. 1e300, and > 0 for at least one counted query.
        counted: [query] bool.

    Raises:
        ValueError: the weights do not fit.
    """
    given = real_tensor(weights, "weights").to(counted.device).double()
    if given.shape != counted.shape:
        raise ValueError(f"weights must be [query], {len(counted)} numbers; got shape {tuple(given.shape)}")
    bad = ~((given >= 0) & (given <= SUMMABLE))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"weights must be in 0 .. {SUMMABLE:g}; the weight of query {row} is {float(given[row])}")
    if not bool((given[counted] > 0).any()):
        raise ValueError("weights must be > 0 for at least one query that counts; all of them are 0")
    return given


def closest(given: str, known: Iterable[str], alike: float = 0.5) -> str:
    """The end of a message about an unknown name: the closest known name, or a full stop.

    Args:
        given: the name.
        known: the known names.
        alike: how close the closest name must be, 0 to 1.

    >>> closest("smoothap", ["smooth_ap", "supap"])
    "; did you mean 'smooth_ap'?"
    >>> closest("xyz", ["smooth_ap", "supap"])
    '.'
    """
    names = {name.lower(): name for name in known}  # capitals do not matter
    close = difflib.get_close_matches(given.lower(), names, n=1, cutoff=alike)
    return f"; did you mean {names[close[0]]!r}?" if close else "."


def unknown(kind: str, given: object, known: Iterable[str], lister: str = "", hint: str = "") -> str:
    """One line about an unknown name: its kind, the closest known name, and the known names if they are at most 100.

    Of a list that is longer than the hint before it can bear, only the beginning is shown.

    Args:
        kind: kind of the name, such as "loss".
        given: the name.
        known: the known names.
        lister: where a list that is cut can be seen.
        hint: what the name may mean, in place of the closest name.

    >>> unknown("loss", "smoothap", ["smooth_ap", "supap"])
    "unknown loss 'smoothap'; did you mean 'smooth_ap'? Known: smooth_ap, supap"
    """
    names = sorted(known)
    shown = names
    while len(", ".join(shown)) > LONGEST_LIST:
        shown = shown[:-1]
    left = len(names) - len(shown)
    more = f", and {left} others{f': {lister}' if lister else ''}" if left else ""
    listed = f" Known: {', '.join(shown)}{more}" if len(names) <= 100 else ""
    return f"unknown {kind} {given!r}{hint or closest(str(given), names)}{listed}"


def number(
    value: object,
    what: str,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    otherwise: str = "",
) -> float:
    """The value as a float. It must be a finite number of Python or numpy in the range; not True or "0.1".

    Args:
        value: the argument.
        what: beginning of the message: the argument and its meaning.
        above: exclusive lower bound.
        low: smallest allowed value.
        high: largest allowed value.
        otherwise: other allowed values, for the message.

    Raises:
        ValueError: the value is not a number, or not in the range.

    >>> number(0.1, "tau is a temperature", above=0)
    0.1
    >>> number("abc", "tau is a temperature", above=0)
    Traceback (most recent call last):
        ...
    ValueError: tau is a temperature and must be a number > 0; got 'abc'
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    real = float(value) if is_number else math.nan  # type: ignore[arg-type]  # a Real
    bounds = ((above, ">", operator.gt), (low, ">=", operator.ge), (high, "<=", operator.le))
    given = [(bound, sign, holds) for bound, sign, holds in bounds if bound is not None]
    if not math.isfinite(real) or not all(holds(real, bound) for bound, _, holds in given):
        allowed = " and".join(f" {sign} {bound:g}" for bound, sign, _ in given)
        raise ValueError(f"{what} and must be a number{allowed}{otherwise}; got {value!r}")
    return real


def coverage(confidence: object) -> float:
    """The confidence of an interval as a float between 0 and 1. An interval of confidence 1 would hold every number.

    >>> coverage(95)
    Traceback (most recent call last):
        ...
    ValueError: confidence is a coverage and must be between 0 and 1, such as 0.95; got 95
    """
    what = "confidence is a coverage"
    real = number(confidence, what)
    if not 0 < real < 1:
        raise ValueError(f"{what} and must be between 0 and 1, such as 0.95; got {confidence!r}")
    return real


def flag(value: object, name: str) -> bool:
    """The value, which must be True or False; "no" and 0 raise a ValueError.

    >>> flag("no", "normalize")
    Traceback (most recent call last):
        ...
    ValueError: normalize must be True or False; got 'no'
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return value


def one_of(value: T, name: str, known: Sequence[object]) -> T:
    """The value, which must be one of the known ones.

    >>> one_of("sum", "reduction", ("mean", "none"))
    Traceback (most recent call last):
        ...
    ValueError: reduction must be 'mean' or 'none'; got 'sum'
    """
    if value not in known:
        *first, last = map(repr, known)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}; got {value!r}")
    return value
