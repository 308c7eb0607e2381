"""Time of actions that alternate: processor time on a CPU, time between events on a GPU."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

Action = Callable[[], object]
Clock = Callable[[Action, int], tuple[float, float]]

CPU = torch.device("cpu")
# Seconds per sample: shorter actions are repeated within a sample.
LEAST = 0.01
# Rounds that take longer than this many seconds are repeated less often.
LONG_ROUND, FEW_ROUNDS = 15.0, 3


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one action, one entry per round.

    Attributes:
        busy: processor time (user + system) of this process, or time of the GPU between two events.
        wall: wall-clock time.
    """

    busy: list[float]
    wall: list[float]

    @property
    def ms(self) -> float:
        """Median `busy` of a call in milliseconds."""
        return 1e3 * statistics.median(self.busy)

    @property
    def wall_ms(self) -> float:
        """Median wall-clock time of a call in milliseconds."""
        return 1e3 * statistics.median(self.wall)

    def over(self, other: Timing) -> float:
        """Median over the rounds of the ratio of `busy`: this action divided by the other."""
        return statistics.median(a / max(b, 1e-9) for a, b in zip(self.busy, other.busy, strict=True))

    def wall_over(self, other: Timing) -> float:
        """The same ratio of wall-clock time, for actions with several threads."""
        return statistics.median(a / max(b, 1e-9) for a, b in zip(self.wall, other.wall, strict=True))


def processor_clock(action: Action, calls: int) -> tuple[float, float]:
    """(processor, wall-clock) seconds per call."""
    wall, busy = time.perf_counter(), time.process_time()
    for _ in range(calls):
        action()
    return (time.process_time() - busy) / calls, (time.perf_counter() - wall) / calls


def event_clock(action: Action, calls: int, cuda: Any = torch.cuda) -> tuple[float, float]:
    """(device, wall-clock) seconds per call. Device time is between two events, and includes gaps in its queue."""
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda.synchronize()
    wall = time.perf_counter()
    start.record()
    for _ in range(calls):
        action()
    end.record()
    cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / calls, (time.perf_counter() - wall) / calls


def clock_of(device: torch.device) -> Clock:
    """The clock for work on a device."""
    return processor_clock if device.type == "cpu" else event_clock


def alternate(
    actions: Mapping[str, Action], rounds: int, what: str = "", clock: Clock | None = None
) -> dict[str, Timing]:
    """Time actions alternately, round by round, after one or two calls of each to warm up.

    Args:
        actions: name -> function to call.
        rounds: number of samples of each action; at most 3 if a round takes longer than 15 s.
        what: text of the progress line on stderr.
        clock: function that measures a number of calls; None: `processor_clock`.

    >>> sorted(alternate({"a": lambda: None, "b": lambda: sum(range(99))}, rounds=3))
    ['a', 'b']
    """
    clock = processor_clock if clock is None else clock
    calls, whole_round = {}, 0.0
    for name, action in actions.items():
        progress(f"{what}: warming up {name}")
        needed = math.inf
        for _ in range(2):  # the first call may load code; a long one need not be repeated
            needed = min(needed, clock(action, 1)[0])
            if needed > 10 * LEAST:
                break
        calls[name] = min(max(math.ceil(LEAST / max(needed, 1e-6)), 1), 100)
        whole_round += calls[name] * needed
    rounds = min(rounds, FEW_ROUNDS) if whole_round > LONG_ROUND else rounds
    timings = {name: Timing([], []) for name in actions}
    for number in range(rounds):
        for name, action in actions.items():
            progress(f"{what}: round {number + 1} of {rounds}, {name}")
            busy, wall = clock(action, calls[name])
            timings[name].busy.append(busy)
            timings[name].wall.append(wall)
    progress("")
    return timings


def exponent(sizes: list[int], values: list[Any]) -> float | None:
    """Slope between the two largest measured sizes on a log-log scale. There, constant costs matter least.

    >>> exponent([1, 2, 4], [7.0, 8.0, 32.0])
    2.0
    """
    points = [(s, v) for s, v in zip(sizes, values, strict=True) if isinstance(v, float) and v > 0]
    if len(points) < 2:
        return None
    (a, x), (b, y) = points[-2:]
    return math.log(y / x) / math.log(b / a)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch, and restore it at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def progress(text: str) -> None:
    """Show one line on a terminal; the next call overwrites it. Without a terminal, nothing is shown."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:100]}")
        sys.stderr.flush()
