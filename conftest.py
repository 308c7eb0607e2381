"""Problems shared by the tests of the core: ragged lists, graded lists, batches of embeddings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # several workers: together as many threads as cores, before torch starts
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))

import torch
from pretended import pretended
from torch import Tensor

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell that starts the tests in the background has switched Ctrl-C off, for every process that they start too
    signal.signal(signal.SIGINT, signal.default_int_handler)


THREADS = torch.get_num_threads()

#: The tests of the library and of the workbench see no plug-in, whatever is installed. Those of the pages and of the
#: benchmarks see all.
HERE = Path(__file__).parent
WITHOUT_PLUGINS = (HERE / "tests", HERE / "packages" / "rankgrad-workbench" / "tests")
WITH_PLUGINS = (HERE / "tests" / "docs", HERE / "tests" / "benchmarks")


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Switch plug-ins off while a file of the library's tests is read or run, in processes that it starts too."""
    with pytest.MonkeyPatch.context() as patch:
        # pytest asks about the tests of other folders too
        without, seeing = (any(map(path.is_relative_to, folders)) for folders in (WITHOUT_PLUGINS, WITH_PLUGINS))
        if without and not seeing:
            patch.setenv("RANKGRAD_PLUGINS", "none")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Cases of `parametrize` are made here."""
    with alone(collector.path):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """A test with its fixtures."""
    with alone(item.path):
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let test_on_device.py run on a GPU."""
    parser.addoption("--device", default="cpu", help="where test_on_device.py computes, such as cuda (default: cpu)")


@pytest.fixture(scope="session")
def chosen_device(request: pytest.FixtureRequest) -> torch.device:
    """What --device says."""
    chosen = torch.device(request.config.getoption("--device"))
    if chosen.type == "cuda" and not torch.cuda.is_available():
        pytest.fail("--device cuda: torch sees no GPU here", pytrace=False)
    return chosen


@pytest.fixture
def gpu(chosen_device: torch.device) -> torch.device:
    """The GPU of --device."""
    if chosen_device.type != "cuda":
        pytest.skip("needs a GPU: make test-gpu")
    return chosen_device


@pytest.fixture
def device(request: pytest.FixtureRequest, chosen_device: torch.device) -> Iterator[torch.device]:
    """Where test_on_device.py computes: what --device says, and beside the CPU a device that is only pretended."""
    if request.param == "chosen":
        yield chosen_device
    else:
        with pretended() as elsewhere:
            yield elsewhere


@pytest.fixture(autouse=True, scope="session")
def no_flushing() -> Iterator[None]:
    """Nothing waits for the disk, which takes ms for each of thousands of files: tests need not outlast a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # a descriptor that is closed is still an error
        yield


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Give every test the same threads: with those that an earlier run has asked for, two workers stand still."""
    yield
    torch.set_num_threads(THREADS)


@pytest.fixture
def no_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave an empty page, a third of the time of a small one; where `with_page` is asked for, theirs."""
    if "with_page" not in request.fixturenames:
        from rankgrad_workbench.tasks.retrieval import task as retrieval

        monkeypatch.setattr(retrieval, "read_run", lambda run, **_: None)
        monkeypatch.setattr(retrieval, "write_report", lambda path, _: path.write_text(""))


@pytest.fixture
def with_page() -> None:
    """Asks for the pages of runs."""


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP is heeded, though the tests may run under nohup, which every process that they start would inherit."""
    earlier = signal.getsignal(signal.SIGHUP)
    if earlier is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, earlier)


class Problem(NamedTuple):
    """A score matrix, who is relevant, and which entries exist."""

    scores: Tensor
    relevant: Tensor
    valid: Tensor


class Batch(NamedTuple):
    """Embeddings and labels of queries and of references."""

    embeddings: Tensor
    labels: Tensor
    ref_emb: Tensor
    ref_labels: Tensor


@pytest.fixture
def problem() -> Callable[..., Problem]:
    """Builds lists with 1 .. 7 relevant items, one without irrelevant ones, and two queries without relevant ones."""

    def build(seed: int = 0, *, ties: bool = False, graded: bool = False, all_counted: bool = False) -> Problem:
        g = torch.Generator().manual_seed(seed)
        queries, items = (7 if all_counted else 9), 13
        scores = torch.rand(queries, items, generator=g, dtype=torch.float64) * 1.25 - 0.3
        if ties:
            scores = (scores * 8).round() / 8  # exact in binary, so that level scores are level in every precision
        relevant = torch.zeros(queries, items, dtype=torch.bool)
        valid = torch.rand(queries, items, generator=g) > 0.2
        for q in range(7):
            chosen = torch.randperm(items, generator=g)
            relevant[q, chosen[: q + 1]] = True
            valid[q, chosen[: q + 1]] = True
            if q == 6:
                valid[q] = relevant[q]  # nothing irrelevant
            else:
                valid[q, chosen[-2:]] = True  # something irrelevant
                relevant[q, chosen[7]] = True  # relevant, but not there
                valid[q, chosen[7]] = False
        if not all_counted:
            relevant[8, 3] = True  # query 7 has nothing relevant, query 8 nothing relevant that is valid
            valid[8, 3] = False
        if not graded:
            return Problem(scores, relevant, valid)
        levels = torch.randint(1, 4, scores.shape, generator=g).double() / 4
        return Problem(scores, relevant * levels, valid)

    return build


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """Builds 3-d embeddings of ragged classes, one of them with one member, and references."""

    def build(seed: int = 0) -> Batch:
        g = torch.Generator().manual_seed(seed)
        labels = torch.tensor([0, 1, 1, 2, 2, 2, 3, 3, 3, 3])[torch.randperm(10, generator=g)]
        ref_labels = torch.tensor([0, 0, 1, 2, 2, 2, 2, 4, 4, 1, 2])[torch.randperm(11, generator=g)]
        embeddings = torch.randn(10, 3, generator=g, dtype=torch.float64)
        ref_emb = torch.randn(11, 3, generator=g, dtype=torch.float64)
        return Batch(embeddings, labels, ref_emb, ref_labels)

    return build
