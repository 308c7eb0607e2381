"""A training step on a CPU with the default allocator settings of the C library, and with those of `cli.allocator`."""

from __future__ import annotations

import statistics
import subprocess
import sys

from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

SIZES = ((64, 128), (160, 64))  # side of the images, images in a batch
PROGRAM = """
import sys
side, batch, steps, kept = map(int, sys.argv[1:])
if kept:
    from rankgrad_workbench.cli.allocator import keep_large_blocks
    print("kept" if keep_large_blocks({}) else "not possible")
import resource, time, torch
from rankgrad.losses import ROADMAPLoss
from rankgrad_workbench.models import build_model
torch.manual_seed(0)
model, loss = build_model("convnet", in_channels=3), ROADMAPLoss()
optimizer = torch.optim.AdamW(model.parameters())
images, labels = torch.rand(batch, 3, side, side), torch.arange(batch) // 4
def step():
    optimizer.zero_grad()
    loss(model(images), labels).backward()
    optimizer.step()
step()
step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
start = time.process_time()
for _ in range(steps):
    step()
used = (time.process_time() - start) / steps
after = resource.getrusage(resource.RUSAGE_SELF)
print(used, (after.ru_minflt - faults) / steps, after.ru_maxrss / 1024)
"""


def allocator(options: Options) -> Result:
    """Processor time, page faults and peak memory of a training step, each in a new process."""
    rows: list[list[Cell]] = []
    checks = []
    for side, batch in [(16, 8)] if options.quick else SIZES:
        seconds: dict[bool, list[list[float]]] = {False: [], True: []}
        for _ in range(1 if options.quick else options.rounds):
            for kept in (False, True):  # alternating, so that other work of the machine affects both
                seconds[kept].append(_measure(side, batch, 1 if options.quick else 3, kept))
        plain, ours = ([statistics.median(column) for column in zip(*seconds[k], strict=True)] for k in (False, True))
        ratio = statistics.median(a[0] / b[0] for a, b in zip(seconds[False], seconds[True], strict=True))
        rows.append([f"{side} x {side}, {batch}", 1e3 * plain[0], 1e3 * ours[0], ratio, *plain[1:], *ours[1:]])
        checks.append(
            Check(f"step of {batch} images of {side} px over that with blocks kept", ratio, 1.4, at_most=False)
        )
    columns = (
        *("image, batch", "own habits: ms", "blocks kept: ms", "own / kept"),
        *("own: page faults", "own: peak MB", "kept: page faults", "kept: peak MB"),
    )
    note = "Processor time of a step of the default convnet with ROADMAP and AdamW. Only glibc shows this difference."
    return Result([ResultTable("Memory that stays with the process", columns, rows, note)], checks)


def _measure(side: int, batch: int, steps: int, kept: bool) -> list[float]:
    words = [sys.executable, "-c", PROGRAM, *map(str, (side, batch, steps, int(kept)))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]
