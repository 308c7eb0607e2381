"""Results as aligned text and as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankgrad.common.text import markdown
from rankgrad_papers.timing.results import Check, ResultTable, cells

from .peers import PEERS

HOW = (
    "Each comparison alternates its candidates within one process. So the machine has little influence on the ratios. "
    "**Read the ratios**: the milliseconds belong to one machine. {times} A time is the median over the rounds. A "
    "ratio is the median of the ratios within a round. A floor is the least possible work: bare matrix products, "
    "elementwise steps or copies. 'As printed' means short code that follows the paper's formula."
)
CPU_TIMES = "Times are processor time (user + system) on one thread. Other programs disturb it least."
GPU_TIMES = "Times are those of the GPU between two events, including gaps in its queue."
NO_GPU = (
    "**No benchmark has been run on a GPU yet.** `make bench-gpu` measures the same losses on a CUDA GPU. It also "
    "measures longer lists, larger banks and the share of a ResNet-50 training step. It is tested on CPU tensors."
)


def page(*records: Mapping[str, Any]) -> str:
    """The results as a Markdown page, from what `run` writes as json. Each record names its command and its machine."""
    on_gpu = any(record["machine"]["gpu"] is not None for record in records)
    lines = ["# Benchmarks on a GPU" if on_gpu else "# Benchmarks", ""]
    lines += [HOW.format(times=GPU_TIMES if on_gpu else CPU_TIMES)]
    if not on_gpu:
        lines += ["", NO_GPU]
    for record in records:
        lines += part(record)
    return "\n".join(lines) + "\n"


def part(record: Mapping[str, Any]) -> list[str]:
    """The lines of one record: where and how it was measured, and its suites."""
    setup = origin(record)
    lines = setup if len(record["suites"]) != 1 else []
    if record.get("figure"):
        lines = [*lines, "", f"![Growth of time and peak memory]({record['figure']})"]
    for name, suite in record["suites"].items():
        lines = [*lines, "", f"## {name}", "", suite["about"], *(setup if len(record["suites"]) == 1 else [])]
        for found in suite["tables"]:
            table = ResultTable(**found)
            lines += ["", f"**{table.title}**", "", markdown(cells(table))]
            if table.note:
                lines += ["", table.note]
        if suite["checks"]:
            lines.append("")
        for found in suite["checks"]:
            lines.append(f"* {Check(**{k: v for k, v in found.items() if k != 'kept'})}")
    return lines


def origin(record: Mapping[str, Any]) -> list[str]:
    """Command, machine and versions of a record."""
    machine, versions = record["machine"], record["versions"]
    absent = [name for name in PEERS if versions[name] is None]
    return [
        "",
        f"* Command: `{record['command']}`",
        f"* Machine: {machine['gpu'] + '; ' if machine['gpu'] is not None else ''}{machine['cpu']}, "
        f"{machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['system']}. "
        f"{machine['threads']} thread unless a table says otherwise. Load at the start: {machine['load']}.",
        f"* Versions: {', '.join(f'{name} {version}' for name, version in versions.items() if version)}."
        + (f" Not installed, so left out: {', '.join(absent)}." if absent else ""),
    ]
