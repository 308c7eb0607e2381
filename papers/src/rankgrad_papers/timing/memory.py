"""Peak memory of an action: of a fresh process on a CPU, of the allocator on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .clocks import CPU, Action, progress, threads

# Cases by name, so that a new process can run one: (sizes, device) -> bytes.
Cases = Mapping[str, Callable[..., int]]
MIB = 2**20


def peak_rise(action: Action, device: torch.device = CPU, cuda: Any = torch.cuda) -> int:
    """Peak memory of an action in bytes, minus the memory in use before it: of this process, or of a GPU."""
    if device.type != "cpu":
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        held = cuda.memory_allocated()
        action()
        cuda.synchronize()
        return int(cuda.max_memory_allocated() - held)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the memory in use now
    except OSError:
        pass  # then no earlier action may have used much memory
    before = _peak()
    action()
    return max(_peak() - before, 0)


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        match = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if match:
            return 1024 * int(match[1])
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def peak_mib(
    cases: Cases, case: str, *sizes: int, device: torch.device = CPU, module: str = "rankgrad_papers.timing"
) -> float:
    """Peak memory of a case in MiB: in a new process on a CPU, in this process on a GPU.

    Args:
        cases: by name.
        case: name of the case to measure.
        sizes: arguments of the case.
        device: device of the computation.
        module: module that measures a case if it is run as `python -m MODULE CASE SIZES`, see `main`.

    Raises:
        RuntimeError: the new process failed. The message has the end of its error output.
    """
    progress(f"memory: {case} {' '.join(map(str, sizes))}")
    if device.type != "cpu":
        peak = cases[case](*sizes, device=device)
        progress("")
        return peak / MIB
    words = [sys.executable, "-m", module, case, *map(str, sizes)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    progress("")
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {case!r} failed: {done.stderr.strip()[-500:]}")
    return int(done.stdout.split()[-1]) / MIB


def main(cases: Cases, arguments: Sequence[str]) -> None:
    """Print the peak memory of one case in bytes, for `peak_mib` in another process."""
    with threads(1):
        print(cases[arguments[0]](*map(int, arguments[1:])))


def total() -> int:
    """Total memory of the machine in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


def room(device: torch.device = CPU) -> int:
    """Maximum bytes of a case: half of the memory of the machine or the GPU."""
    if device.type == "cpu":
        return total() // 2
    return int(torch.cuda.get_device_properties(device).total_memory) // 2
