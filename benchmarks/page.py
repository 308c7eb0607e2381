"""Results as aligned text and as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankgrad.tables import markdown
from rankgrad_papers.timing.results import Check, ResultTable, cells

from .peers import PEERS

CPU_TIMES = "Times are processor time (user + system), which other programs disturb least, on one thread."
GPU_TIMES = "Times are those of the GPU between two events, gaps in its queue included."
NO_GPU = (
    "On a CUDA GPU, `make bench-gpu` measures the same losses there, longer lists, larger banks and the share of a "
    "ResNet-50 training step. It is tested on CPU tensors and **has not been run on a GPU yet**; there are no numbers."
)


def page(record: Mapping[str, Any]) -> str:
    """The results as a Markdown page, from what `run` writes as json."""
    machine, versions = record["machine"], record["versions"]
    on_gpu = machine["gpu"] is not None
    absent = [name for name in PEERS if versions[name] is None]
    lines = [
        "# Benchmarks on a GPU" if on_gpu else "# Benchmarks",
        "",
        "Written by `python -m benchmarks`; the numbers behind it are in the json file if one was asked for. Command:",
        "",
        f"    {record['command']}",
        "",
        "What is compared alternates within one process, so that the machine cancels out: **read the ratios**, the "
        "milliseconds belong to this machine. " + (GPU_TIMES if on_gpu else CPU_TIMES) + " A time is the median over "
        "the rounds, a ratio the median of the ratios within a round. Floors are bare matrix products, elementwise "
        "steps and copies; 'as printed' means short code that follows the paper's formula.",
        "",
        f"Machine: {machine['gpu'] + '; ' if on_gpu else ''}{machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']:.0f} GiB, {machine['system']}; {machine['threads']} thread used "
        f"unless said otherwise; load at the start {machine['load']}. "
        + ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        + "."
        + (f" Not installed, so left out: {', '.join(absent)}." if absent else ""),
    ]
    if not on_gpu:
        lines += ["", NO_GPU]
    if record.get("figure"):
        lines += ["", f"![Time and peak memory against the batch size]({record['figure']})"]
    for name, suite in record["suites"].items():
        lines += ["", f"## {name}", "", suite["about"]]
        for found in suite["tables"]:
            table = ResultTable(**found)
            lines += ["", f"**{table.title}**", "", markdown(cells(table))]
            if table.note:
                lines += ["", table.note]
        if suite["checks"]:
            lines.append("")
        for found in suite["checks"]:
            lines.append(f"* {Check(**{k: v for k, v in found.items() if k != 'kept'})}")
    return "\n".join(lines) + "\n"
