"""Reading a csv of numbers: processor time and peak memory, beside pandas; each in a new process."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

READERS = {
    "rankgrad": "from rankgrad_workbench.tasks.scores.table import load_table as read",
    "pandas": "from pandas import read_csv as read",
}
# ru_maxrss would be that of the process which starts this one, if that is larger
MEASURE = r"""
import re, sys, time
from pathlib import Path
{reader}
start = time.process_time()
read(sys.argv[1])
seconds = time.process_time() - start
print(seconds, re.search(r"VmHWM:\s*([0-9]+)", Path("/proc/self/status").read_text())[1])
"""


def csv_files(options: Options) -> Result:
    """Reading a csv of numbers, with and without double quotes, beside pandas."""
    count, width = (100, 4) if options.quick else (1_000_000, 20)
    rows: list[list[Cell]] = []
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as name:
        for about, quoting in (("numbers", csv.QUOTE_MINIMAL), ("quoted numbers", csv.QUOTE_ALL)):
            path = Path(name, "rows.csv")
            _write(path, count, width, quoting)
            rounds = 1 if options.quick else 3
            seconds = {reader: min(_measured(path, reader) for _ in range(rounds)) for reader in READERS}
            rows += [[f"{about}: {reader}", *measured] for reader, measured in seconds.items()]
            ratio = seconds["rankgrad"][0] / seconds["pandas"][0]
            checks.append(Check(f"Processor time of reading {about} over pandas", ratio, 2))
    note = (
        f"{count:,} rows of {width} numbers and a label. Processor seconds of the call, without imports; peak memory "
        "of the process, with them: of rankgrad with torch."
    )
    return Result([ResultTable("Reading a csv", ("reader", "s", "peak MiB"), rows, note)], checks)


def _write(path: Path, count: int, width: int, quoting: int) -> None:
    g = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=quoting)  # type: ignore[arg-type]  # one of csv's constants
        writer.writerow([*(f"x{place}" for place in range(width)), "label"])
        for begin in range(0, count, 10_000):
            values = g.normal(size=(min(10_000, count - begin), width))
            labels = (values[:, 0] > 1).astype(int).tolist()
            writer.writerows([*row, label] for row, label in zip(values.tolist(), labels, strict=True))


def _measured(path: Path, reader: str) -> tuple[float, float]:
    """Processor seconds, and MiB."""
    words = [sys.executable, "-c", MEASURE.format(reader=READERS[reader]), str(path)]
    seconds, kilobytes = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), int(kilobytes) / 1024
