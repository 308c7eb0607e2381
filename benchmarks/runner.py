"""One run of suites: their device, tables and output files."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from rankgrad._version import __version__
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import threads
from rankgrad_papers.timing.growth import check_format, figure
from rankgrad_papers.timing.results import Options, ResultTable, as_text
from rankgrad_workbench.files import write_text
from rankgrad_workbench.runs.provenance import processor

from .page import page
from .peers import PEERS, installed
from .suites import GPU_SUITES, SUITES, Suite


def run(
    names: Sequence[str] = (),
    json_path: Path | None = None,
    data_root: Path | None = None,
    *,
    markdown_path: Path | None = None,
    figure_path: Path | None = None,
    long: bool = False,
    quick: bool = False,
    device: str = "cpu",
) -> None:
    """Run suites, print their tables and, if asked, write them.

    Args:
        names: suites; none: all suites of the device.
        json_path: file for the numbers.
        data_root: folder of Omniglot, for the training suite.
        markdown_path: file for the tables as a page.
        figure_path: file for the picture of the growth (.svg, .png, .pdf), of the suite `growth` if it is the only
            one that is chosen, else of `scaling`, which is added.
        long: whether to run the sizes that take minutes as well.
        quick: use tiny sizes, to test that the suites run; the numbers have no meaning.
        device: "cpu", or "cuda" for the suites of `GPU_SUITES`.

    Raises:
        ValueError: unknown suite or format, or unknown device.
        RuntimeError: a suite failed; the others were still run and written.
    """
    suites = SUITES if device == "cpu" else GPU_SUITES
    unknown = [name for name in names if name not in suites]
    if unknown:
        raise ValueError(f"unknown suite {unknown[0]!r} for {device}; known: {', '.join(suites)}")
    if figure_path is not None:
        check_format(Path(figure_path))
    options = Options(None if data_root is None else Path(data_root), long, quick, _device(device))
    chosen = list(dict.fromkeys(names)) or list(suites)
    drawn = "growth" if chosen == ["growth"] else "scaling"
    if figure_path is not None and drawn not in chosen:
        chosen.append(drawn)
    files = {"--json": json_path, "--markdown": markdown_path, "--figure": figure_path}
    record: dict[str, Any] = {
        "command": _command(names, files, options),
        "device": device,
        "machine": _machine(options.device),
        "versions": _versions(),
        "suites": {},
    }
    failed: dict[str, Exception] = {}
    if figure_path is not None:
        record["figure"] = os.path.relpath(figure_path, Path(markdown_path or figure_path).parent)
    with threads(1):
        record["machine"]["threads"] = torch.get_num_threads()
        for name in chosen:
            try:
                record["suites"][name] = _suite(name, suites[name], options)
            except Exception as error:
                failed[name] = error
                print(f"  ({name} failed: {error})", flush=True)
    if drawn in failed:
        record.pop("figure", None)
    elif figure_path is not None:
        tables = [ResultTable(**table) for table in record["suites"][drawn]["tables"]]
        figure(tables, Path(figure_path))
        print(f"wrote {figure_path}")
    for path, text in ((json_path, json.dumps(record, indent=1) + "\n"), (markdown_path, page(record))):
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_text(Path(path), text)
            print(f"wrote {path}")
    if failed:
        first = next(iter(failed.values()))
        if isinstance(first, ModuleNotFoundError):  # the command line tells the user what to install
            raise first
        raise RuntimeError(f"failed: {', '.join(failed)}; see the first error above") from first


def _suite(name: str, suite: Suite, options: Options) -> dict[str, Any]:
    """Run and print one suite; returns its results as plain data."""
    about = (suite.__doc__ or "").splitlines()[0]
    print(f"\n{name}: {about}", flush=True)
    start = time.perf_counter()
    result = suite(options)
    seconds = time.perf_counter() - start
    if options.quick:  # limits are for the real sizes only
        result = replace(result, checks=[])
    for table in result.tables:
        print("\n" + as_text(table))
    for check in result.checks:
        print(f"  {check}")
    print(f"  ({name}: {seconds:.0f} s)", flush=True)
    return {
        "about": about,
        "seconds": seconds,
        "tables": [asdict(table) for table in result.tables],
        "checks": [{**asdict(check), "kept": check.kept} for check in result.checks],
    }


def _device(name: str) -> torch.device:
    """The device of that name, if it is available."""
    if name not in ("cpu", "cuda"):
        raise ValueError(f"benchmarks run on cpu or cuda; got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "--device cuda needs an NVIDIA GPU and a torch built for it; torch.cuda.is_available() is False here. "
            "Without --device the same losses are measured on the CPU"
        )
    return torch.device(name)


def _command(names: Sequence[str], files: Mapping[str, Path | None], options: Options) -> str:
    """The command line of this run, without folders of this machine."""
    words = ["python", "-m", "benchmarks", *names]
    words += ["--long"] * options.long + ["--quick"] * options.quick
    words += [f"--device {options.device.type}"] if options.device.type != "cpu" else []
    words += ["--data-root DIR"] if options.data_root is not None else []
    words += [f"{flag} {path}" for flag, path in files.items() if path is not None and not Path(path).is_absolute()]
    return " ".join(words)


def _machine(device: torch.device) -> dict[str, Any]:
    load = f"{os.getloadavg()[0]:.1f}"
    return {
        "cpu": processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": memory.total() / 2**30,
        "system": f"{platform.system()} {platform.machine()}",
        "load": load,
        "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None,
    }


def _versions() -> dict[str, str | None]:
    named = {name: installed(name) for name in ("torch", "numpy", "timm", *PEERS)}
    return {"rankgrad": __version__, "python": platform.python_version(), "cuda": torch.version.cuda, **named}
