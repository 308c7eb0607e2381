r"""`rankgrad bench`: time and memory, as ratios within one run, so that the machine cancels out.

What is compared alternates within one process (round by round, so that a slow moment hits all of it), on one thread.
Times are processor time (user + system), which other programs disturb least; a ratio is the median over the rounds of
the ratio within a round. Peak memory is measured in a process of its own for each point.

Beside our code stand a floor that no code can beat (a bare matrix product), references that follow a formula as it is
printed, and losses of pytorch-metric-learning where it is installed.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import losses
from ._version import __version__
from .search import MAX_BLOCK, rank_blocks

Cell: TypeAlias = "str | float | None"  # None: not measured
Action = Callable[[], object]

DIM = 512
PER_CLASS = 4
GEMM = "GEMM"
# Seconds of work per sample: shorter actions are repeated within a sample.
LEAST = 0.01


@dataclass(frozen=True)
class Options:
    """What a suite may be told.

    Args:
        data_root: folder of Omniglot, for the training suite; None: the built-in glyphs.
        long: also the sizes that take minutes.
        quick: tiny sizes and few rounds: shows that the suites run; the numbers mean nothing.
    """

    data_root: Path | None = None
    long: bool = False
    quick: bool = False

    @property
    def rounds(self) -> int:
        """Rounds that a median is taken over."""
        return 2 if self.quick else 5


@dataclass(frozen=True)
class Table:
    """One table of results.

    Attributes:
        title: what it shows, with units.
        columns: their heads.
        rows: cells, the first of each row is its name.
        note: how it was measured.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A number that should keep to a limit.

    Attributes:
        what: the number.
        value: as measured.
        limit: its limit.
        at_most: whether the limit is an upper one.
    """

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def kept(self) -> bool:
        """Whether the value keeps to the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        relation = "at most" if self.at_most else "at least"
        verdict = "kept" if self.kept else "MISSED"
        return f"{self.what}: {_shown(self.value)} ({relation} {_shown(self.limit)}: {verdict})"


@dataclass(frozen=True)
class Result:
    """What a suite found."""

    tables: list[Table]
    checks: list[Check] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one action, one entry per round."""

    cpu: list[float]
    wall: list[float]

    @property
    def ms(self) -> float:
        """Median processor time of a call in milliseconds."""
        return 1e3 * statistics.median(self.cpu)

    @property
    def wall_ms(self) -> float:
        """Median wall-clock time of a call in milliseconds."""
        return 1e3 * statistics.median(self.wall)

    def over(self, other: Timing) -> float:
        """Median over the rounds of my processor time as a multiple of the other's."""
        return statistics.median(a / max(b, 1e-9) for a, b in zip(self.cpu, other.cpu, strict=True))


def alternate(actions: Mapping[str, Action], rounds: int, what: str = "") -> dict[str, Timing]:
    """Time actions in turn, round by round, after a call or two of each to warm up.

    Args:
        actions: name -> what to do.
        rounds: samples of each.
        what: shown as progress on stderr.

    >>> sorted(alternate({"a": lambda: None, "b": lambda: sum(range(99))}, rounds=3))
    ['a', 'b']
    """
    calls = {}
    for name, action in actions.items():
        _progress(f"{what}: warming up {name}")
        needed = math.inf
        for _ in range(2):  # the first call may load code; a long one need not be repeated
            start = time.process_time()
            action()
            needed = min(needed, time.process_time() - start)
            if needed > 10 * LEAST:
                break
        calls[name] = min(max(math.ceil(LEAST / max(needed, 1e-6)), 1), 100)
    found = {name: Timing([], []) for name in actions}
    for number in range(rounds):
        for name, action in actions.items():
            _progress(f"{what}: round {number + 1} of {rounds}, {name}")
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(calls[name]):
                action()
            found[name].cpu.append((time.process_time() - cpu) / calls[name])
            found[name].wall.append((time.perf_counter() - wall) / calls[name])
    _progress("")
    return found


def peak_rise(action: Action) -> int:
    """Bytes by which an action raises the peak of this process's memory above what it held before."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
    except OSError:
        pass  # then the action must be the first to take much memory
    before = _peak()
    action()
    return max(_peak() - before, 0)


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return 1024 * int(found[1])
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def _peak_mib(case: str, *sizes: int) -> float:
    """MiB that a case of `MEMORY_CASES` takes at its peak, in a fresh process."""
    _progress(f"memory: {case} {' '.join(map(str, sizes))}")
    words = [sys.executable, "-m", "rankgrad.bench", case, *map(str, sizes)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    _progress("")
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {case!r} failed: {done.stderr.strip()[-500:]}")
    return int(done.stdout.split()[-1]) / 2**20


def _exponent(sizes: Sequence[int], values: Sequence[Cell]) -> float | None:
    """Slope between the two largest measured sizes on a log-log scale: constant parts matter least there."""
    points = [(s, v) for s, v in zip(sizes, values, strict=True) if isinstance(v, float) and v > 0]
    if len(points) < 2:
        return None
    (a, x), (b, y) = points[-2:]
    return math.log(y / x) / math.log(b / a)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --------------------------------------------------------------------------------------------------------- references


def cube_ap(
    embeddings: Tensor, labels: Tensor, pos: Callable[[Tensor], Tensor], neg: Callable[[Tensor], Tensor]
) -> Tensor:
    """1 - AP with relaxed ranks as the equations are printed: one tensor of all differences s_qj - s_qi.

    Args:
        embeddings: [query, dim] float.
        labels: [query] long.
        pos: step for relevant items.
        neg: step for irrelevant ones.
    """
    scores = embeddings @ embeddings.T
    same = labels.unsqueeze(1) == labels
    others = ~torch.eye(len(labels), dtype=torch.bool)
    relevant = same & others
    differences = scores.unsqueeze(1) - scores.unsqueeze(2)  # [query, i, j]
    above_pos = (pos(differences) * (relevant.unsqueeze(1) & others)).sum(2)
    above_neg = (neg(differences) * ~same.unsqueeze(1)).sum(2)
    precision = (1 + above_pos) / (1 + above_pos + above_neg)
    return 1 - ((precision * relevant).sum(1) / relevant.sum(1)).mean()


def cube_smooth_ap(embeddings: Tensor, labels: Tensor, tau: float = 0.01) -> Tensor:
    """Smooth-AP (Brown et al., ECCV 2020): `cube_ap` with a sigmoid of temperature tau for both steps."""
    return cube_ap(embeddings, labels, lambda t: torch.sigmoid(t / tau), lambda t: torch.sigmoid(t / tau))


def cube_sup_ap(
    embeddings: Tensor, labels: Tensor, tau: float = 0.01, rho: float = 100.0, delta: float = 0.05
) -> Tensor:
    """SupAP (Ramzi et al., NeurIPS 2021, eqs. 3-5): exact steps among relevant items, H^- for the others."""

    def h_minus(t: Tensor) -> Tensor:
        bell = torch.sigmoid(t / tau)
        joint = 0.5 + 1 / (1 + math.exp(-delta / tau))
        return torch.where(t < 0, bell, torch.where(t <= delta, bell + 0.5, rho * (t - delta) + joint))

    return cube_ap(embeddings, labels, lambda t: (t >= 0).to(t.dtype), h_minus)


class _PrintedRank(torch.autograd.Function):
    """RaMBO's Algorithm 1 as it is printed: a whole ranking forward, another one backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lambda_: float) -> Tensor:
        ranks = _ranking(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_ = lambda_
        return ranks

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        scores, ranks = ctx.saved_tensors
        return -(ranks - _ranking(scores + ctx.lambda_ * upstream[0])) / ctx.lambda_, None


def _ranking(scores: Tensor) -> Tensor:
    """Ranks 1 .. n, 1 the largest."""
    return 1 + torch.argsort(torch.argsort(scores, descending=True)).to(scores.dtype)


def printed_rambo_ap(scores: Tensor, relevant: Tensor, lambda_: float = 4.0, margin: float = 0.02) -> Tensor:
    """RaMBO's AP loss of one list (Rolinek et al., CVPR 2020, eqs. 14, 21-23) on rankings by sorting everything.

    Args:
        scores: [item] float.
        relevant: [item] bool.
        lambda_: in ranks divided by the length of the list, as published values are.
        margin: score units.
    """
    shifted = torch.where(relevant, scores - margin / 2, scores + margin / 2)
    ranks: Tensor = _PrintedRank.apply(shifted, lambda_ * len(scores))
    among_relevant = _ranking(shifted.detach()[relevant])
    return 1 - (among_relevant / ranks[relevant]).mean()


def _pml() -> dict[str, nn.Module]:
    """Losses of pytorch-metric-learning that have a counterpart here, {} if it is not installed."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the imports behind it
        from pytorch_metric_learning import losses as pml

        return {
            "SmoothAPLoss": pml.SmoothAPLoss(temperature=0.01),
            "FastAPLoss": pml.FastAPLoss(num_bins=10),
            "MultiSimilarityLoss": pml.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
        }


# ----------------------------------------------------------------------------------------------------------- in-batch


def in_batch(options: Options) -> Result:
    """Losses of a batch against the matrix product of its scores, forward and backward; time and memory."""
    sizes = (16, 32) if options.quick else (128, 384, 1024)
    found = {size: _in_batch_times(size, options.rounds) for size in sizes}
    names = list(dict.fromkeys(name for times in found.values() for name in times))

    def row(name: str) -> list[Cell]:
        cells: list[Cell] = [name]
        for times in found.values():
            mine = times.get(name)
            cells += [None, None] if mine is None else [mine.ms, mine.over(times[GEMM])]
        return cells

    heads = tuple(text for size in sizes for text in (f"B={size}: ms", "x GEMM"))
    note = (
        f"Embeddings [B, {DIM}] float32, {PER_CLASS} per class, normalize=False; forward, and backward to them. "
        f"GEMM = E @ E.T and its backward. h_ap: two levels of labels, {PER_CLASS} classes to a super-label. 'as "
        "printed': the formula with all differences in one tensor [B, B, B]; run where that takes up to 1/4 GiB. PML = "
        "pytorch-metric-learning" + (", which normalises inside." if _pml() else ": not installed, so left out.")
    )
    middle = found[sizes[1]]
    checks = [Check(f"SupAP over GEMM, B={sizes[1]}", middle["supap"].over(middle[GEMM]), 3.0)]
    memory, memory_checks = _in_batch_memory(options)
    times = Table("In-batch losses: processor time", ("loss", *heads), [row(n) for n in names], note)
    return Result([times, memory], checks + memory_checks)


def _batch(size: int) -> tuple[Tensor, Tensor]:
    """Unit embeddings [size, DIM] that want a gradient, and labels."""
    generator = torch.Generator().manual_seed(0)
    embeddings = F.normalize(torch.randn(size, DIM, generator=generator), dim=1).requires_grad_()
    return embeddings, torch.arange(size) // PER_CLASS


def _step(embeddings: Tensor, loss: Callable[[Tensor, Tensor], Tensor], labels: Tensor) -> None:
    embeddings.grad = None
    loss(embeddings, labels).backward()  # type: ignore[no-untyped-call]


def _in_batch_times(size: int, rounds: int) -> dict[str, Timing]:
    embeddings, labels = _batch(size)
    upstream = torch.randn(size, size, generator=torch.Generator().manual_seed(1))

    def gemm() -> None:
        embeddings.grad = None
        (embeddings @ embeddings.T).backward(upstream)  # type: ignore[no-untyped-call]

    hierarchy = torch.stack([labels // PER_CLASS, labels], 1)
    actions: dict[str, Action] = {GEMM: gemm}
    for name, make in losses.LOSSES.items():
        actions[name] = partial(_step, embeddings, make(normalize=False), hierarchy if name == "h_ap" else labels)
    cube_fits = 4 * size**3 <= 2**28
    if cube_fits:
        actions["SupAP as printed"] = partial(_step, embeddings, cube_sup_ap, labels)
        actions["Smooth-AP as printed"] = partial(_step, embeddings, cube_smooth_ap, labels)
    for name, theirs in _pml().items():
        if cube_fits or name != "SmoothAPLoss":  # theirs is a cube too
            actions[f"PML {name}"] = partial(_step, embeddings, theirs, labels)
    return alternate(actions, rounds, f"in_batch B={size}")


def _in_batch_memory(options: Options) -> tuple[Table, list[Check]]:
    sizes = (32,) if options.quick else (128, 256, 512, 1024, 2048)
    rows: list[list[Cell]] = []
    exponents: list[float] = []
    for case in ("supap", "smooth_ap", "supap cube", "smooth_ap cube"):
        # a cube and the tensors that its backward keeps: about eight of them
        fits = [8 * 4 * size**3 <= _memory() / 2 if case.endswith("cube") else True for size in sizes]
        fits = [fit and (size <= 512 or not case.endswith("cube")) for fit, size in zip(fits, sizes, strict=True)]
        peaks: list[Cell] = [_peak_mib(case, size) if fit else None for fit, size in zip(fits, sizes, strict=True)]
        exponent = _exponent(sizes, peaks)
        exponents.append(math.nan if exponent is None else exponent)
        rows.append([case.replace(" cube", " as printed"), *peaks, exponent])
    note = (
        "Rise of the resident peak during one forward and backward pass, in a fresh process per cell. Exponent: of "
        "growth between the two largest sizes measured. -: not run, at 512 the cube takes gigabytes already."
    )
    table = Table("In-batch losses: peak memory, MiB", ("loss", *(f"B={s}" for s in sizes), "exponent"), rows, note)
    # a square matrix has exponent 2, a cube 3; what does not grow pulls both down
    check = Check(f"SupAP's memory, exponent at B={sizes[-1]}", exponents[0], 2.2)
    return table, [check]


def _memory() -> int:
    """Bytes of memory of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


# ----------------------------------------------------------------------------------------------------------- blackbox


def blackbox(options: Options) -> Result:
    """RaMBO's AP loss of one long list, forward and backward, against sorting it."""
    lengths = [2_000, 20_000] if options.quick else [100_000, 1_000_000] + [10_000_000] * options.long
    rows: list[list[Cell]] = []
    checks = []
    for dtype in (torch.float32, torch.float64):
        for n in lengths:
            for p, least in ((10, 10.0), (min(10_000, n // 10), 3.0)):
                times = _blackbox_times(n, p, dtype, options.rounds)
                ours, sorts, printed = times["ours"], times["two argsorts"], times["as printed"]
                speed_up, over_printed = 1 / ours.over(sorts), 1 / ours.over(printed)
                kind = str(dtype).removeprefix("torch.")
                rows.append([f"{n:,}, {p:,}, {kind}", ours.ms, sorts.ms, printed.ms, speed_up, over_printed])
                if dtype == torch.float32 and n == lengths[1]:
                    checks.append(
                        Check(f"two argsorts over RaMBO AP, {n:,} scores, {p:,} positives", speed_up, least, False)
                    )
    columns = (
        "scores, positives",
        "ours: ms",
        "two argsorts: ms",
        "as printed: ms",
        "two argsorts / ours",
        "as printed / ours",
    )
    note = (
        "One list, RaMBOAPLoss.from_scores forward and backward. Two argsorts = torch.argsort twice, nothing else. As "
        "printed = Algorithm 1: two rankings, each an argsort of an argsort, with the gradient."
        + ("" if options.long else " 10,000,000 scores: --long.")
    )
    return Result([Table("Long lists: processor time", columns, rows, note)], checks)


def _blackbox_times(n: int, p: int, dtype: torch.dtype, rounds: int) -> dict[str, Timing]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, n, generator=generator, dtype=dtype).requires_grad_()
    relevant = torch.zeros(1, n, dtype=torch.bool)
    relevant[0, torch.randperm(n, generator=generator)[:p]] = True
    loss = losses.RaMBOAPLoss()

    def ours() -> None:
        scores.grad = None
        loss.from_scores(scores, relevant).backward()  # type: ignore[no-untyped-call]

    def sorts() -> None:
        for _ in range(2):
            torch.argsort(scores.detach(), descending=True)

    def printed() -> None:
        scores.grad = None
        printed_rambo_ap(scores[0], relevant[0]).backward()  # type: ignore[no-untyped-call]

    actions: dict[str, Action] = {"ours": ours, "two argsorts": sorts, "as printed": printed}
    return alternate(actions, rounds, f"blackbox n={n:,} p={p:,}")


# ---------------------------------------------------------------------------------------------------------- evaluator


def evaluator(options: Options) -> Result:
    """Exact evaluation ranks over a large gallery against the matrix product of the same blocks."""
    queries, items = (40, 2_000) if options.quick else (1_000, 60_000)
    gallery, labels = _gallery(items)
    numbers = torch.arange(items)
    buffer = torch.empty(MAX_BLOCK, items)

    def gemm() -> None:
        for rows in torch.split(gallery[:queries], MAX_BLOCK):
            torch.mm(rows, gallery.T, out=buffer[: len(rows)])

    actions: dict[str, Action] = {GEMM: gemm, "evaluation ranks": partial(_evaluate, gallery, labels, numbers, queries)}
    times = alternate(actions, options.rounds, "evaluator")
    ratio = times["evaluation ranks"].over(times[GEMM])
    peak = _peak_mib("evaluator", queries, items)
    rows: list[list[Cell]] = [
        [GEMM, times[GEMM].ms, times[GEMM].wall_ms, 1.0, buffer.numel() * 4 / 2**20],
        ["evaluation ranks", times["evaluation ranks"].ms, times["evaluation ranks"].wall_ms, ratio, peak],
    ]
    note = (
        f"{queries:,} queries x {items:,} items x {DIM} float32, {PER_CLASS} per class, the query itself left out; the "
        f"ranks of all relevant items under three readings of ties. GEMM in the same blocks of {MAX_BLOCK} queries. "
        f"Memory beyond the embeddings; the whole score matrix would take {queries * items * 4 / 2**20:.0f} MiB."
    )
    table = Table("Evaluation", ("", "processor ms", "wall ms", "x GEMM", "peak MiB"), rows, note)
    return Result([table], [Check("evaluation ranks over GEMM", ratio, 1.6)])


def _gallery(items: int) -> tuple[Tensor, Tensor]:
    """Unit embeddings around class centres, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(items) // PER_CLASS
    centres = torch.randn(int(labels[-1]) + 1, DIM, generator=generator)
    return F.normalize(centres[labels] + 2 * torch.randn(items, DIM, generator=generator), dim=1), labels


def _evaluate(gallery: Tensor, labels: Tensor, numbers: Tensor, queries: int) -> None:
    blocks = rank_blocks(gallery[:queries], labels[:queries], gallery, labels, ids=numbers[:queries], ref_ids=numbers)
    for _ in blocks:
        pass


# ----------------------------------------------------------------------------------------------------------- training

STAGES = ("batch", "forward", "loss", "backward", "update")


def training(options: Options) -> Result:
    """An epoch with each loss against the epoch with cross-entropy, and where its time goes."""
    from .baselines import CrossEntropyLoss

    table, batches = _training_data(options)
    size = {"classes": len(table.class_names), "dim": 128}
    cross_entropy = CrossEntropyLoss(size["classes"], size["dim"])
    named: dict[str, nn.Module] = {"cross_entropy": cross_entropy}
    chosen = (
        ("roadmap",)
        if options.quick
        else ("roadmap", "supap", "smooth_ap", "pnp", "rambo_recall", "rambo_ap", "fastap")
    )
    named |= {name: losses.LOSSES[name]() for name in chosen}
    named |= {f"PML {name}": loss for name, loss in _pml().items() if name != "FastAPLoss"}
    epochs = {name: _Epoch(loss, table, batches, size["dim"]) for name, loss in named.items()}
    times = alternate(dict(epochs), options.rounds, "training")
    base = times["cross_entropy"]
    rows: list[list[Cell]] = []
    for name, mine in times.items():
        shares = epochs[name].shares()
        rows.append([name, mine.ms / batches, mine.wall_ms / batches, mine.over(base), *(100 * s for s in shares)])
    columns = ("loss", "processor ms per step", "wall ms per step", "x cross_entropy", *(f"{s} %" for s in STAGES))
    note = (
        f"Epochs of {batches} batches of 32 classes x 4 images of {table.name}, 28 x 28, random affine maps; convnet "
        "16-32-64-128, 128-d embeddings, AdamW. The shares are of processor time; 'backward' is that of model and loss."
    )
    title = "Training: processor time of a step"
    return Result(
        [Table(title, columns, rows, note)],
        [Check("ROADMAP epoch over cross-entropy epoch", times["roadmap"].over(base), 1.15)],
    )


def _training_data(options: Options) -> tuple[Any, int]:
    """Table of training images with classes 0 .. C - 1, and batches per epoch."""
    from .datasets import load_glyphs, load_omniglot

    table = load_glyphs() if options.data_root is None else load_omniglot(options.data_root)
    table = table.select("train")
    present, label = torch.unique(table.label, return_inverse=True)
    table = replace(table, label=label, class_names=tuple(table.class_names[c] for c in present.tolist()))
    return table, 2 if options.quick else 21


class _Epoch:
    """A model in training: every call is one epoch; remembers where the processor time went."""

    def __init__(self, loss: nn.Module, table: Any, batches: int, dim: int) -> None:
        from torch.utils.data import DataLoader

        from .datasets import ImageSet
        from .models import convnet
        from .samplers import MPerClassBatchSampler
        from .transforms import Collate, InkTrain

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = convnet(widths=(16, 32, 64, 128), embedding_size=dim)
        self.loss = loss
        parameters = [*self.model.parameters(), *loss.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=5e-3, weight_decay=1e-4)
        self.sampler = MPerClassBatchSampler(table.label, 32, 4, batches_per_epoch=batches)
        transform = InkTrain(degrees=10, scale=0.1, shear=0.1, shift=0.07, elastic=0, stroke=0)
        self.loader = DataLoader(ImageSet(table), batch_sampler=self.sampler, collate_fn=Collate(transform))
        self.spent = dict.fromkeys(STAGES, 0.0)
        self.epoch = 0

    def __call__(self) -> None:
        self.sampler.set_epoch(self.epoch)
        self.epoch += 1
        clock = time.process_time()

        def done(stage: str) -> None:
            nonlocal clock
            now = time.process_time()
            self.spent[stage] += now - clock
            clock = now

        for images, labels, _ in self.loader:
            done("batch")
            embeddings = self.model(images)
            done("forward")
            value = self.loss(embeddings, labels)
            done("loss")
            self.optimizer.zero_grad()
            value.backward()
            done("backward")
            self.optimizer.step()
            done("update")

    def shares(self) -> list[float]:
        """Share of each stage in the processor time so far."""
        total = sum(self.spent.values())
        return [spent / max(total, 1e-9) for spent in self.spent.values()]


# ------------------------------------------------------------------------------------------------------------- memory


def _memory_of_loss(loss: Callable[[Tensor, Tensor], Tensor], size: int) -> int:
    small, small_labels = _batch(16)
    _step(small, loss, small_labels)  # loads what is loaded on first use
    embeddings, labels = _batch(size)
    return peak_rise(lambda: _step(embeddings, loss, labels))


def _memory_of_evaluator(queries: int, items: int) -> int:
    gallery, labels = _gallery(items)
    _evaluate(gallery[:64], labels[:64], torch.arange(64), 8)
    return peak_rise(lambda: _evaluate(gallery, labels, torch.arange(items), queries))


MEMORY_CASES: dict[str, Callable[..., int]] = {
    "supap": lambda size: _memory_of_loss(losses.SupAPLoss(normalize=False), size),
    "smooth_ap": lambda size: _memory_of_loss(losses.SmoothAPLoss(normalize=False), size),
    "supap cube": lambda size: _memory_of_loss(cube_sup_ap, size),
    "smooth_ap cube": lambda size: _memory_of_loss(cube_smooth_ap, size),
    "evaluator": _memory_of_evaluator,
}


# ------------------------------------------------------------------------------------------------------------ the run

SUITES: dict[str, Callable[[Options], Result]] = {
    "in_batch": in_batch,
    "blackbox": blackbox,
    "evaluator": evaluator,
    "training": training,
}


def run(
    names: Sequence[str] = (),
    json_path: Path | None = None,
    data_root: Path | None = None,
    *,
    markdown_path: Path | None = None,
    long: bool = False,
    quick: bool = False,
) -> None:
    """Run suites, print their tables and, if asked, write them.

    Args:
        names: suites; none: all.
        json_path: file for the numbers.
        data_root: folder of Omniglot, for the training suite.
        markdown_path: file for the tables as a page.
        long: also the sizes that take minutes.
        quick: tiny sizes: shows that the suites run, the numbers mean nothing.

    Raises:
        ValueError: unknown suite.
    """
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise ValueError(f"unknown suite {unknown[0]!r}; known: {', '.join(SUITES)}")
    options = Options(None if data_root is None else Path(data_root), long, quick)
    chosen = list(dict.fromkeys(names)) or list(SUITES)
    record: dict[str, Any] = {
        "command": _command(names, json_path, markdown_path, options),
        "machine": _machine(),
        "versions": _versions(),
        "suites": {},
    }
    with _one_thread():
        record["machine"]["threads"] = torch.get_num_threads()
        for name in chosen:
            about = (SUITES[name].__doc__ or "").splitlines()[0]
            print(f"\n{name}: {about}", flush=True)
            start = time.perf_counter()
            result = SUITES[name](options)
            seconds = time.perf_counter() - start
            if quick:  # limits are meant for the real sizes
                result = replace(result, checks=[])
            record["suites"][name] = {
                "about": about,
                "seconds": seconds,
                "tables": [asdict(table) for table in result.tables],
                "checks": [{**asdict(check), "kept": check.kept} for check in result.checks],
            }
            for table in result.tables:
                print("\n" + as_text(table))
            for check in result.checks:
                print(f"  {check}")
            print(f"  ({name}: {seconds:.0f} s)", flush=True)
    for path, text in ((json_path, json.dumps(record, indent=1) + "\n"), (markdown_path, page(record))):
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
            print(f"wrote {path}")


def as_text(table: Table) -> str:
    """A table as aligned lines: title, head, rows, note.

    >>> print(as_text(Table("Speed", ("loss", "ms"), [["a", 1.0], ["longer", None]])))
    Speed
    loss      ms
    a       1.00
    longer     -
    """
    cells = [list(table.columns), *([_shown(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in cells
    ]
    return "\n".join([table.title, *lines, *([table.note] if table.note else [])])


def page(record: Mapping[str, Any]) -> str:
    """The results as a Markdown page, from what `run` writes as json."""
    machine, versions = record["machine"], record["versions"]
    lines = [
        "# Benchmarks",
        "",
        "Written by `rankgrad bench`; the numbers behind it are in `results.json` if that was asked for. Command:",
        "",
        f"    {record['command']}",
        "",
        "What is compared alternates within one process on one thread, so that the machine cancels out: **read the "
        "ratios**, the milliseconds belong to this machine. Times are medians of processor time (user + system), a "
        "ratio is the median of the ratios within a round. Floors are bare matrix products; 'as printed' means short "
        "code that follows the paper's formula.",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['system']}; "
        f"{machine['threads']} thread used; load at the start {machine['load']}. "
        + ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        + ".",
    ]
    for name, suite in record["suites"].items():
        lines += ["", f"## {name}", "", suite["about"]]
        for found in suite["tables"]:
            table = Table(**found)
            lines += ["", f"**{table.title}**", ""]
            lines += ["| " + " | ".join(table.columns) + " |", "|---" + "|--:" * (len(table.columns) - 1) + "|"]
            lines += ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in table.rows]
            if table.note:
                lines += ["", table.note]
        if suite["checks"]:
            lines.append("")
        for found in suite["checks"]:
            lines.append(f"* {Check(**{k: v for k, v in found.items() if k != 'kept'})}")
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    """Three digits or so; an empty cell is a dash."""
    if isinstance(cell, str):
        return cell
    if cell is None or not math.isfinite(cell):
        return "-"
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


def _command(names: Sequence[str], json_path: Path | None, markdown_path: Path | None, options: Options) -> str:
    """The command line that does the same, with folders of this machine left out."""
    words = ["rankgrad", "bench", *names]
    words += ["--long"] * options.long + ["--quick"] * options.quick
    words += ["--data-root DIR"] if options.data_root is not None else []
    words += [f"--json {json_path}"] if json_path is not None and not Path(json_path).is_absolute() else []
    words += [f"--markdown {markdown_path}"] if markdown_path and not Path(markdown_path).is_absolute() else []
    return " ".join(words)


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "cpu": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": _memory() / 2**30,
        "system": f"{platform.system()} {platform.machine()}",
        "load": load,
    }


def _versions() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"rankgrad": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "pytorch-metric-learning"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _progress(text: str) -> None:
    """One line on a terminal, rewritten by the next; nothing elsewhere."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text[:100]}")
        sys.stderr.flush()


if __name__ == "__main__":  # one memory case, in the fresh process that `_peak_mib` starts
    torch.set_num_threads(1)
    print(MEMORY_CASES[sys.argv[1]](*map(int, sys.argv[2:])))
