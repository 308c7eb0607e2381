"""The benchmark suites at tiny size: they run, what they compare with is right, and their records are whole."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pretended import pretended
from torch import Tensor

from benchmarks import CASE, detection, launches, peers, scaling, texts
from benchmarks.__main__ import main
from benchmarks.page import page
from benchmarks.runner import run
from benchmarks.suites import GPU_SUITES
from benchmarks.suites import SUITES as ON_CPU
from rankgrad import losses
from rankgrad_papers.timing import clocks, memory, references
from rankgrad_papers.timing.clocks import Timing
from rankgrad_papers.timing.growth import STYLES, figure
from rankgrad_papers.timing.results import Check, Options, Result, ResultTable, as_text, shown
from rankgrad_workbench import cli

SUITES = {**ON_CPU, **GPU_SUITES}


@cache
def found_by(suite: str) -> Result:
    """What a suite finds at tiny size."""
    with clocks.threads(1):
        return SUITES[suite](Options(quick=True))


@pytest.fixture(autouse=True)
def quickly(request, monkeypatch):
    """Time every action once, and start no Python for a cell, which takes seconds: tests of that ask for `fresh`."""
    monkeypatch.setattr(clocks, "LEAST", 0.0)
    for name, count in (("CLASSES", 32), ("EACH", 8), ("WORDS", 500)):
        monkeypatch.setattr(texts, name, count)
    if "fresh" not in request.fixturenames:

        def peak_mib(cases, case, *sizes, device=clocks.CPU, module=""):
            return cases[case](*sizes, device=device) / 2**20

        def seconds(words):
            start = time.perf_counter()
            assert cli.main(words) == 0
            return time.perf_counter() - start

        monkeypatch.setattr(memory, "peak_mib", peak_mib)
        monkeypatch.setattr(texts, "_seconds", seconds)


@pytest.fixture
def fresh() -> None:
    """Asks for processes of their own."""


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    rows = torch.randn(len(labels), 4, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=1).requires_grad_(), labels


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        (references.cube_smooth_ap, losses.SmoothAPLoss(normalize=False)),
        (references.cube_sup_ap, losses.SupAPLoss(normalize=False)),
    ],
)
def test_formula_as_printed_has_the_value_and_gradient_of_our_loss(printed, ours):
    embeddings, labels = batch()
    values, grads = [], []
    for loss in (printed, ours):
        value = loss(embeddings, labels)
        values.append(value.detach())
        grads.append(torch.autograd.grad(value, embeddings)[0])
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(
    ("steps", "ours"),
    [
        ((references.sigmoid_step, references.sigmoid_step), losses.SmoothAPLoss()),
        ((references.exact_step, references.h_minus), losses.SupAPLoss()),
    ],
)
def test_formula_with_a_row_per_pair_has_the_value_and_gradient_of_our_loss(steps, ours):
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(4, 9, generator=generator, dtype=torch.float64).mul_(0.1).requires_grad_()
    relevant = torch.zeros(4, 9, dtype=torch.bool)
    relevant[:, [1, 4, 8]] = True
    printed, mine = references.pairs_ap(scores, relevant, *steps), ours.from_scores(scores, relevant)
    torch.testing.assert_close(printed, mine)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (printed, mine)))


def test_algorithm_1_as_printed_has_the_value_and_gradient_of_rambo_ap():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(60, generator=generator, dtype=torch.float64).requires_grad_()
    relevant = torch.rand(60, generator=generator) < 0.2
    printed = references.printed_rambo_ap(scores, relevant, lambda_=0.5)
    ours = losses.RaMBOAPLoss(lambda_=0.5).from_scores(scores.unsqueeze(0), relevant.unsqueeze(0))
    torch.testing.assert_close(printed, ours)
    theirs = torch.autograd.grad(printed, scores)[0]
    assert theirs.count_nonzero() > 5
    torch.testing.assert_close(torch.autograd.grad(ours, scores)[0], theirs)


def test_actions_take_turns_round_by_round():
    called = []
    times = clocks.alternate({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, rounds=3)
    assert [len(t.busy) for t in times.values()] == [3, 3]
    turns = [name for name, before in zip(called, ["", *called], strict=False) if name != before]
    assert turns == ["a", "b"] * 4  # once to warm up, three rounds


def test_ratio_is_the_median_of_the_ratios_within_a_round():
    slow_moment = Timing(busy=[2.0, 20.0, 2.2], wall=[2.0] * 3), Timing(busy=[1.0, 10.0, 1.0], wall=[1.0] * 3)
    assert slow_moment[0].over(slow_moment[1]) == 2.0
    assert slow_moment[0].ms == 2200.0


def test_long_rounds_are_repeated_less_often():
    seconds = []

    def slow(action, calls):
        seconds.append(calls)
        return 20.0, 20.0

    assert len(clocks.alternate({"a": lambda: None}, rounds=5, clock=slow)["a"].busy) == 3
    assert seconds == [1] * 4  # one to warm up: what takes long is not called again for that


class Gpu:
    """A GPU of which the calls are written down: what is queued takes a second each, and 7 bytes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.queued = 0

    def Event(self, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=0)

        def record() -> None:
            event.at = self.queued
            self.calls.append("record")

        event.record, event.elapsed_time = record, lambda later: 1e3 * (later.at - event.at)
        return event

    def work(self) -> None:
        self.queued += 1
        self.calls.append("work")

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def reset_peak_memory_stats(self) -> None:
        self.calls.append("reset")

    def memory_allocated(self) -> int:
        return 100

    def max_memory_allocated(self) -> int:
        return 100 + 7 * self.queued


def test_time_on_a_gpu_is_that_between_events_with_nothing_else_in_the_queue():
    gpu = Gpu()
    busy, wall = clocks.event_clock(gpu.work, 3, gpu)
    assert busy == 1.0 and 0 <= wall < 1
    assert gpu.calls == ["synchronize", "record", "work", "work", "work", "record", "synchronize"]
    assert clocks.clock_of(torch.device("cuda")) is clocks.event_clock


def test_memory_on_a_gpu_is_what_its_allocator_reached_beyond_what_was_held():
    gpu = Gpu()
    assert memory.peak_rise(gpu.work, torch.device("cuda"), gpu) == 7
    assert gpu.calls == ["synchronize", "reset", "work", "synchronize"]


def test_cases_are_measured_in_this_process_on_a_gpu(fresh):
    given = []

    def case(*sizes, device):
        given.append((sizes, device))
        return 3 * 2**20

    assert memory.peak_mib({"a case": case}, "a case", 4, 5, device=torch.device("cuda")) == 3.0
    assert given == [((4, 5), torch.device("cuda"))]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak can only be set back on Linux")
def test_peak_of_memory_that_was_freed_again_is_seen():
    lines = (  # a process of its own: this one may hold freed memory that it takes again
        "import torch; from rankgrad_papers.timing.memory import peak_rise",
        "print(peak_rise(lambda: torch.ones(2**24).sum()), peak_rise(lambda: None))",  # 64 MiB
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    rise, nothing = map(int, done.stdout.split())
    assert 60 * 2**20 < rise < 80 * 2**20
    assert nothing < 2**20


def test_exponent_is_that_of_the_last_doubling():
    assert clocks.exponent([1, 2, 4], [7.0, 8.0, 32.0]) == pytest.approx(2)
    assert clocks.exponent([1, 2, 4], [1.0, 8.0, None]) == pytest.approx(3)
    assert clocks.exponent([1], [1.0]) is None


@pytest.mark.slow
def test_a_fresh_process_measures_a_cube_where_the_formula_is_taken_literally(fresh):
    assert memory.peak_mib({}, "supap cube", 256, module=CASE) > 64  # MiB; one tensor [256, 256, 256]


@pytest.mark.slow
def test_a_fresh_process_measures_little_more_than_score_matrices_for_our_loss(fresh):
    assert 0.25 < memory.peak_mib({}, "supap", 256, module=CASE) < 32  # MiB; one matrix has 1/4


def stand_in(path: Path, lines: str) -> str:
    """A shell script to be called in the place of Python."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def test_a_case_that_fails_says_why(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", stand_in(tmp_path / "python", "echo out of memory >&2\nexit 1"))
    with pytest.raises(RuntimeError, match="'supap' failed: out of memory"):
        memory.peak_mib({}, "supap", 256, module=CASE)
    with pytest.raises(RuntimeError, match="rankgrad search failed: out of memory"):
        texts._seconds(["search"])


def test_a_command_is_timed_on_one_thread_in_a_process_of_its_own(fresh, tmp_path, monkeypatch):
    command = stand_in(tmp_path / "python", f'echo "$OMP_NUM_THREADS $*" > {tmp_path}/called')
    monkeypatch.setattr("sys.executable", command)
    assert texts._seconds(["search", "a text"]) > 0
    assert (tmp_path / "called").read_text() == "1 -m rankgrad search a text\n"


# ten seconds and more
LONG = ("allocator", "step_profile", "sub_batch", "resnet_step", "command_step", "corpus", "csv_files", "texts")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in SUITES])
def test_suite_runs_and_every_cell_is_a_name_or_a_sane_number(name):
    result = found_by(name)
    assert result.tables
    for table in result.tables:
        assert table.title and table.note
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert isinstance(row[0], str) and row[0]
            for head, cell in zip(table.columns[1:], row[1:], strict=True):
                least = -math.inf if head == "exponent" else 0  # at tiny sizes time need not grow
                assert cell is None or (isinstance(cell, float) and math.isfinite(cell) and cell >= least)
            assert any(cell is not None for cell in row[1:])
    assert all(math.isfinite(check.value) or "exponent" in check.what for check in result.checks)


@pytest.mark.slow
@pytest.mark.parametrize("name", GPU_SUITES)
def test_a_suite_of_a_gpu_mixes_no_devices(name, monkeypatch):
    """On a pretended device, whose clock and memory are the CPU's: the numbers mean nothing, the ways are a GPU's."""
    monkeypatch.setattr(clocks, "event_clock", clocks.processor_clock)
    for counted in ("memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, counted, lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2**34))
    with clocks.threads(1), pretended() as device:
        assert GPU_SUITES[name](Options(quick=True, device=device)).tables


def test_every_loss_of_the_table_is_timed_and_the_floor_has_ratio_one():
    times = found_by("in_batch").tables[0]
    names = [row[0] for row in times.rows]
    assert set(losses.LOSSES) <= set(names)
    floor = times.rows[names.index("GEMM")]
    assert floor[2::2] == [1.0, 1.0]


def test_packages_that_compute_ap_find_the_same():
    rows = found_by("evaluator").tables[1].rows
    assert [row[0] for row in rows] == ["ours", *peers.ap_functions()]
    for row in rows:
        assert row[-1] == pytest.approx(rows[0][-1], abs=1e-6)


def test_size_picked_is_that_of_what_is_run():
    sizes = {"quick": 1, "cpu": 2, "gpu": 3}
    assert Options(quick=True).pick(**sizes) == Options(quick=True, device=torch.device("cuda")).pick(**sizes) == 1
    assert Options().pick(**sizes) == 2
    assert Options(device=torch.device("cuda")).pick(**sizes) == 3


@pytest.mark.parametrize("batches", [0, 7])
def test_a_detection_loss_is_measured_with_a_full_memory_and_sorting_with_the_same_lists(batches):
    step = detection._Step(detection.Size(64, 4, batches, 0), clocks.CPU)
    assert step.loss.memory.rows == batches * 64
    assert step.lists.shape == (4, 64 * (1 + batches))


def test_operators_are_what_computes_whatever_its_shape():
    x = torch.ones(4, 6)
    assert launches.operators(lambda: x.view(6, 4).T.unsqueeze(0)) == 0
    assert launches.operators(lambda: torch.empty(3).add_(x.sum())) == 2


def test_kernels_are_what_ran_on_the_gpu_and_the_largest_come_first():
    def event(name: str, on: str, us: float) -> SimpleNamespace:
        device = SimpleNamespace(name=on)
        return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(elapsed_us=lambda: us))

    found = launches.kernels(
        [event("aten::add", "CPU", 900), event("add", "CUDA", 10), event("sort", "CUDA", 60), event("add", "CUDA", 30)]
    )
    assert found == [("add", 0.01), ("sort", 0.06), ("add", 0.03)]
    sort, add = launches._largest("supap", found).rows
    assert sort == ["sort", 1, pytest.approx(0.06), pytest.approx(60)]
    assert add == ["add", 2, pytest.approx(0.04), pytest.approx(40)]


def test_shares_of_a_training_step_sum_to_one():
    for row in found_by("training").tables[0].rows:
        assert sum(row[4:]) == pytest.approx(100)


def test_run_prints_and_writes_the_same_tables(tmp_path, capsys):
    torch.set_num_threads(1)
    file, text = tmp_path / "numbers.json", tmp_path / "new" / "page.md"
    run(["evaluator", "long_list", "evaluator"], file, quick=True, markdown_path=text)
    record = json.loads(file.read_text())
    assert list(record["suites"]) == ["evaluator", "long_list"]
    assert record["machine"]["threads"] == 1 and record["machine"]["cores"] >= 1
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    command = "python -m benchmarks evaluator long_list evaluator --quick"  # no folders of this machine
    assert record["command"] == command
    printed = capsys.readouterr().out
    for suite in record["suites"].values():
        assert suite["checks"] == []  # limits are not meant for tiny sizes
        for found in suite["tables"]:
            table = ResultTable(**found)
            assert as_text(table) in printed
            for row in table.rows:
                found_row = r"\| +" + r" +\| +".join(re.escape(shown(cell)) for cell in row) + r" +\|"
                assert re.search(found_row, text.read_text())
    assert page(record) == text.read_text()


def test_a_suite_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    def broken(options: Options) -> Result:
        """Breaks."""
        raise ZeroDivisionError("out of luck")

    monkeypatch.setitem(ON_CPU, "scaling", broken)
    with pytest.raises(RuntimeError, match="failed: scaling") as caught:
        run(["scaling", "evaluator"], tmp_path / "numbers.json", quick=True, figure_path=tmp_path / "growth.svg")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert list(json.loads((tmp_path / "numbers.json").read_text())["suites"]) == ["evaluator"]
    assert not (tmp_path / "growth.svg").exists()


def test_threads_are_given_back_after_a_run():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(["long_list"], quick=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_unknown_suite_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="'in-batch'.*known: in_batch, "):
        run(["evaluator", "in-batch"])
    with pytest.raises(ValueError, match="'training' for cuda; known: long_list, "):
        run(["training"], device="cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_what_is_missing(capsys):
    assert main(["--device", "cuda"]) == 2
    assert "--device cuda needs an NVIDIA GPU" in capsys.readouterr().err


def test_suites_of_a_device_are_listed(capsys):
    for words, suites in (([], ON_CPU), (["--device", "cuda"], GPU_SUITES)):
        assert main(["--list", *words]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(suites)


def a_record(**machine) -> dict:
    found = {"cpu": "a CPU", "cores": 2, "memory_gib": 8.0, "system": "Linux", "load": "0.1", "threads": 1, "gpu": None}
    versions = {"torch": "2.6", "torchmetrics": None, "pytorch-metric-learning": "2.9", "scikit-learn": "1.4"}
    return {"command": "python -m benchmarks", "machine": {**found, **machine}, "versions": versions, "suites": {}}


def test_page_says_where_it_was_measured_and_what_was_not():
    here, there = page(a_record()), page(a_record(gpu="a GPU"))
    assert "on a GPU yet" in here and "processor time" in here
    assert "Machine: a GPU; a CPU, 2 cores" in there and "between two events" in there and "on a GPU yet" not in there
    for text in (here, there):
        assert "torch 2.6, pytorch-metric-learning 2.9" in text and "left out: torchmetrics." in text
    assert "![" not in here
    assert "](scaling.svg)" in page({**a_record(), "figure": "scaling.svg"})


def growth() -> Result:
    """What the suite `scaling` might find."""
    columns = ("loss", "B=64", "B=128", "B=256", "exponent")
    rows = [[name, 1.0 + i, 3.0 + i, None if "printed" in name else 9.0 + i, 1.5] for i, name in enumerate(STYLES)]
    empty = ["PML SmoothAPLoss", None, None, None, None]
    return Result([ResultTable(scaling.TIME, columns, rows), ResultTable(scaling.MEMORY, columns, [*rows[:4], empty])])


@pytest.mark.slow
def test_figure_of_a_run_shows_time_and_memory_with_their_exponents(tmp_path, monkeypatch):

    def known(options: Options) -> Result:
        """Growth."""
        return growth()

    monkeypatch.setitem(ON_CPU, "scaling", known)
    path, text = tmp_path / "pictures" / "growth.svg", tmp_path / "page.md"
    run(["evaluator"], quick=True, markdown_path=text, figure_path=path)
    drawn = path.read_text()
    assert "](pictures/growth.svg)" in text.read_text() and "## scaling" in text.read_text()
    for words in ("SupAP as printed", "matrix product", "time of a step, ms", "peak memory, MiB", "batch size B"):
        assert words in drawn


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_figure_is_written_in_other_formats_too(tmp_path, ending):
    figure(growth().tables, tmp_path / f"growth.{ending}")
    assert (tmp_path / f"growth.{ending}").stat().st_size > 5_000


def test_figure_knows_the_losses_it_is_drawn_from():
    drawn = {row[0] for suite in ("scaling", "growth") for table in found_by(suite).tables for row in table.rows}
    assert {table.title for table in found_by("scaling").tables} == {scaling.TIME, scaling.MEMORY}
    assert set(STYLES) <= drawn


def test_format_that_cannot_be_drawn_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=".svg, .png, .pdf; got"):
        run(["evaluator"], quick=True, figure_path=tmp_path / "growth.gif")


def test_check_says_what_was_missed():
    assert str(Check("time over floor", 2.0, 3.0)) == "time over floor: 2.00 (at most 3.00: kept)"
    assert "MISSED" in str(Check("speed-up", 2.0, 3.0, at_most=False))
    assert not Check("time over floor", math.nan, 3.0).kept  # what could not be measured is not kept
