"""Run files against judgements: rankgrad, ranx and pytrec_eval, time and peak memory.

    python benchmarks/runs.py --json benchmarks/runs.json

It needs `pip install ranx pytrec-eval-terrier` (the maintained pytrec_eval). Each measurement runs in a new process.
The programs alternate, so that the ratios depend little on the machine. Importing, and ranx's compilation, are not
timed. All programs must compute the same means; otherwise the script stops.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = {"rankgrad": "rankgrad", "ranx": "ranx", "pytrec_eval": "pytrec-eval-terrier"}
JUDGED = 50  # judged documents of a query; half of them are in its list
CORPUS = 10_000_000  # names of documents
FORMS = {
    "sorted": "a file, each list sorted by score",
    "shuffled": "a file, each list in any order",
    "dictionary": "a dictionary in memory",
}
CASES = (  # form, queries, rounds
    ("sorted", 10_000, 3),
    ("shuffled", 10_000, 3),
    ("dictionary", 10_000, 3),
    ("sorted", 100_000, 1),
)
GIB = 2**30
Means = dict[str, float]
PAGE = """\
## run_files

Metrics from run files and judgements, against ranx and pytrec_eval.

* Command: `python benchmarks/runs.py`. The samples are in `runs.json`.
* Machine: {machine}.
* Versions: {versions}.

The measures are map, ndcg_cut_10, recip_rank and recall_100. {judged} documents of each query are judged. Seconds are
processor time on one thread. Memory is the peak of the process, which may use {limit:.0f} GiB. Every measurement is a
process of its own, and the programs take turns. The ratios are medians over the rounds. The seconds start after all
imports. The imports take, in seconds: {starts} (rankgrad imports torch, ranx numba).
"""


# ----------------------------------------------------------------------------------------------------------- the data


def lists(queries: int, documents: int) -> Any:
    """(names, scores, judged names, grades) of each query, the scores from the highest on; no two are equal."""
    generator = np.random.default_rng(0)
    scores = np.linspace(30, 1, documents)
    for _ in range(queries):
        names = np.unique(generator.integers(CORPUS, size=2 * documents))
        names = generator.permutation(names)[: documents + JUDGED // 2]
        judged = np.concatenate([generator.permutation(documents)[: JUDGED // 2], np.arange(documents, len(names))])
        yield names[:documents], scores, names[judged], generator.integers(3, size=len(judged))


def write_files(folder: Path, queries: int, documents: int, shuffled: bool) -> None:
    """Write run.trec and judged.qrels."""
    order = np.random.default_rng(1)
    with (folder / "run.trec").open("w") as run, (folder / "judged.qrels").open("w") as qrels:
        for query, (names, scores, judged, grades) in enumerate(lists(queries, documents)):
            rows = list(zip(names.tolist(), range(1, documents + 1), scores.tolist(), strict=True))
            if shuffled:
                rows = [rows[place] for place in order.permutation(documents)]
            run.write("".join(f"q{query} Q0 D{name:07d} {rank} {score:.6f} run\n" for name, rank, score in rows))
            pairs = zip(judged.tolist(), grades.tolist(), strict=True)
            qrels.write("".join(f"q{query} 0 D{name:07d} {grade}\n" for name, grade in pairs))


def dictionaries(queries: int, documents: int) -> tuple[Any, Any]:
    """Query -> document -> score, and query -> document -> grade."""
    run, qrels = {}, {}
    for query, (names, scores, judged, grades) in enumerate(lists(queries, documents)):
        run[f"q{query}"] = dict(zip((f"D{name:07d}" for name in names.tolist()), scores.tolist(), strict=True))
        qrels[f"q{query}"] = dict(zip((f"D{name:07d}" for name in judged.tolist()), grades.tolist(), strict=True))
    return run, qrels


# ------------------------------------------------------------------------------------------------------- the programs


def with_rankgrad() -> Callable[[Any, Any], Means]:
    """Means of a run and judgements, files or dictionaries."""
    from rankgrad import trec

    def means(run: Any, qrels: Any) -> Means:
        found = trec.evaluate({"run": run}, qrels, ["map", "ndcg_cut_10", "recip_rank", "recall_100"], intervals=0)
        return found.values["run"]

    return means


def with_ranx() -> Callable[[Any, Any], Means]:
    """Means of a run and judgements, files or dictionaries."""
    from ranx import Qrels, Run, evaluate

    names = {"map": "map", "ndcg@10": "ndcg_cut_10", "mrr": "recip_rank", "recall@100": "recall_100"}

    def means(run: Any, qrels: Any) -> Means:
        if isinstance(run, Path):
            found = evaluate(
                Qrels.from_file(str(qrels), kind="trec"), Run.from_file(str(run), kind="trec"), list(names)
            )
        else:
            found = evaluate(Qrels.from_dict(qrels), Run.from_dict(run), list(names))
        return {names[name]: float(value) for name, value in found.items()}

    return means


def with_pytrec_eval() -> Callable[[Any, Any], Means]:
    """Means of a run and judgements, files or dictionaries."""
    import pytrec_eval

    def means(run: Any, qrels: Any) -> Means:
        if isinstance(run, Path):
            with qrels.open() as file:
                qrels = pytrec_eval.parse_qrel(file)
            with run.open() as file:
                run = pytrec_eval.parse_run(file)
        measures = {"map", "ndcg_cut.10", "recip_rank", "recall.100"}
        values = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
        names = next(iter(values.values()))
        return {name: statistics.fmean(each[name] for each in values.values()) for name in names}

    return means


PROGRAMS = {"rankgrad": with_rankgrad, "ranx": with_ranx, "pytrec_eval": with_pytrec_eval}


def measure(program: str, form: str, queries: int, documents: int, folder: Path) -> dict[str, Any]:
    """Seconds and memory of one program; called in a new process."""
    means = PROGRAMS[program]()
    started = time.process_time()
    means(*dictionaries(50, documents))  # the first call compiles code
    if form == "dictionary":
        run, qrels = dictionaries(queries, documents)
    else:
        run, qrels = folder / "run.trec", folder / "judged.qrels"
    before, start, busy = peak(), time.perf_counter(), time.process_time()
    found = means(run, qrels)
    seconds = {"wall": time.perf_counter() - start, "busy": time.process_time() - busy}
    return {**seconds, "start": started, "before": before, "peak": peak(), "means": found}


def peak() -> float:
    """Peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


# ----------------------------------------------------------------------------------------------------------- the table


def measured_apart(program: str, form: str, size: tuple[int, int], folder: Path, limit: float) -> dict[str, Any] | None:
    """Result of `measure` in a new process with at most `limit` GiB; None if this is not enough."""
    command = [sys.executable, __file__, "--one", program, form, *map(str, size), str(folder)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GIB),) * 2)

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, check=False)
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    # C and C++ end with a signal where Python raises
    if "MemoryError" in done.stderr or "bad_alloc" in done.stderr or done.returncode in (-6, -11):
        return None
    raise RuntimeError(f"{program}, {form}: {done.stderr[-2000:]}")


def compared(form: str, size: tuple[int, int], rounds: int, folder: Path, limit: float) -> dict[str, Any]:
    """Measure all programs alternately, over some rounds."""
    if form != "dictionary":
        write_files(folder, *size, shuffled=form == "shuffled")
    samples: dict[str, list[dict[str, Any]]] = {program: [] for program in PROGRAMS}
    for number in range(rounds):
        for program, found in samples.items():
            if number and not found:
                continue  # out of memory
            one = measured_apart(program, form, size, folder, limit)
            print(form, size, number, program, one, file=sys.stderr, flush=True)
            if one is not None:
                found.append(one)
    expected = samples["rankgrad"][0]["means"]
    for program, found in samples.items():
        for one in found:
            for name, value in expected.items():
                if abs(one["means"][name] - value) > 1e-6:
                    raise RuntimeError(f"{program} finds {name} {one['means'][name]}, rankgrad {value}")
    return {"form": form, "queries": size[0], "documents": size[1], "rounds": rounds, "samples": samples}


def table(found: dict[str, Any]) -> str:
    """A section of the page of benchmarks: a row for each form and size."""
    samples = {name: [one for case in found["cases"] for one in case["samples"][name]] for name in PROGRAMS}
    starts = [f"{name} {statistics.median(one['start'] for one in each):.1f}" for name, each in samples.items()]
    versions = [f"{name} {number}" for name, number in found["versions"].items()]
    lines = [
        PAGE.format(
            judged=JUDGED,
            limit=found["limit"],
            starts=", ".join(starts),
            machine=found["machine"],
            versions=", ".join(versions),
        ),
        "| input | queries x documents | rankgrad | ranx | ratio | pytrec_eval | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case in found["cases"]:
        mine, *others = (case["samples"][program] for program in PROGRAMS)
        cells = [said(mine)]
        for other in others:
            cells += [said(other), ratios(other, mine)] if other else [f"more than {found['limit']:.0f} GiB", "-"]
        size = f"{case['queries']:,} x {case['documents']:,}"
        lines.append(f"| {FORMS[case['form']]} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def said(samples: list[dict[str, Any]]) -> str:
    """Seconds and memory of a program, medians over the rounds."""
    busy, held = (statistics.median(one[name] for one in samples) for name in ("busy", "peak"))
    return f"{busy:,.2f} s, {held:.2f} GiB"


def ratios(other: list[dict[str, Any]], mine: list[dict[str, Any]]) -> str:
    """Time and memory of another program as a multiple of rankgrad's: medians of the ratios within a round."""
    pairs = list(zip(other, mine, strict=True))
    time_ratio, memory_ratio = (statistics.median(a[name] / b[name] for a, b in pairs) for name in ("busy", "peak"))
    return f"**{time_ratio:.1f}** x time, **{memory_ratio:.1f}** x memory"


def machine() -> str:
    """The machine and the versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, load {load:.1f}"


def main() -> None:
    """Measure everything, or one program in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000, help="of a list")
    parser.add_argument("--share", type=float, default=1.0, help="of the queries, for a trial")
    parser.add_argument("--limit", type=float, default=16, help="GiB that a program may take")
    parser.add_argument("--folder", type=Path, help="for the files, 5 GB at 100 000 queries")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        program, form, queries, documents, folder = arguments.one
        print(json.dumps(measure(program, form, int(queries), int(documents), Path(folder))))
        return
    found: dict[str, Any] = {
        "machine": machine(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__}
        | {name: version(package) for name, package in PACKAGES.items()},
        "limit": arguments.limit,
        "cases": [],
    }
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for form, queries, rounds in CASES:
            size = (int(arguments.share * queries), arguments.documents)
            found["cases"].append(compared(form, size, rounds, Path(folder), arguments.limit))
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = table(found)
    if arguments.markdown:
        arguments.markdown.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
