"""On a device what the CPU says: losses, memories, ranks, evaluation, search; `make test-gpu` on a GPU.

Without --device the device is the CPU, where the same tests hold its float32 to its float64, and one that is only
pretended (pretended.py): it refuses, as a GPU does, to mix its tensors with those of the CPU. What only a GPU can show
(that nothing waits for it, CUDA graphs, several GPUs) is skipped there. Numbers in float64 are those of the CPU to
1e-9, in float32 to rounding: a step of temperature tau magnifies the rounding of a score by 1 / tau.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pretended
import pytest
import torch
import torch.distributed as dist
from gpu_runs import begins_as_on_the_cpu
from small_runs import make_photos, small
from torch import Tensor, nn

from rankgrad import losses, metrics
from rankgrad.batches.distributed import GlobalBatch, leave
from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.evaluation import evaluate
from rankgrad.losses import LOSSES as LISTED
from rankgrad.losses import by_query
from rankgrad.losses.baselines import BinomialDevianceLoss, CrossEntropyLoss, HistogramLoss, TieAwareAPLoss
from rankgrad.ranks import Soft, exact_ranks
from rankgrad.ranks.relaxations import Heaviside, Sigmoid, SupStep
from rankgrad.search import topk
from rankgrad_detection.losses import DETECTION_LOSSES
from rankgrad_workbench.tasks.retrieval import task as retrieval


class BetweenPairs(losses.AdaptiveROADMAPLoss):
    """Thresholds between two scores of `batch`: on a score, as by default, rounding decides whether its hinge is on."""

    def __init__(self, **given: Any) -> None:
        super().__init__(quantiles=(0.479, 0.9492), **given)


LOSSES = {**LISTED, "adaptive_roadmap": BetweenPairs}
P, K, DIM = 8, 4, 16
# Relative to the largest entry.
NEAR = {torch.float64: 1e-9, torch.float32: 5e-4}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The chosen device, and beside the CPU the pretended one; each with the types that say something there."""
    on_cpu = metafunc.config.getoption("--device") == "cpu"
    both = [("chosen", torch.float32), ("chosen", torch.float64)]
    # the CPU's float64 is what others are compared with, and pretended numbers are the CPU's
    given = [("chosen", torch.float32), ("pretended", torch.float64)] if on_cpu else both
    if "dtype" in metafunc.fixturenames:
        names = [f"{device}-{str(dtype).removeprefix('torch.')}" for device, dtype in given]
        metafunc.parametrize(("device", "dtype"), given, ids=names, indirect=["device"])
    elif "device" in metafunc.fixturenames:
        metafunc.parametrize("device", list(dict.fromkeys(device for device, _ in given)), indirect=True)


def batch(name: str = "", seed: int = 0) -> tuple[Tensor, Tensor, int]:
    """Float64 embeddings, labels of P classes x K, and how many relevant items each query has."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(P).repeat_interleave(K)
    centres = torch.randn(P, DIM, generator=generator, dtype=torch.float64)
    embeddings = centres[labels] + torch.randn(P * K, DIM, generator=generator, dtype=torch.float64)
    if name and LOSSES[name].levels:
        return embeddings, torch.stack([labels // 2, labels], 1), 2 * K - 1
    return embeddings, labels, K - 1


def near(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    assert got.dtype == dtype
    scale = float(want.abs().max())
    torch.testing.assert_close(got.cpu().double(), want, rtol=0, atol=NEAR[dtype] * max(scale, 1e-3))


def value_and_gradient(loss, embeddings: Tensor, labels: Tensor, **given: Any) -> tuple[Tensor, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels, **given)
    value.backward()
    return value.detach(), leaf.grad


# ----------------------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient_are_those_of_the_cpu(name, promised, device, dtype):
    embeddings, labels, positives = batch(name)
    loss = LOSSES[name](positives=positives if promised else None)
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    got = value_and_gradient(loss.to(device), embeddings.to(device, dtype), labels.to(device))
    for mine, theirs in zip(got, expected, strict=True):
        near(mine, theirs, dtype)


@pytest.mark.parametrize("name", ["smooth_ap", "rambo_ap"])
def test_lists_of_rows_are_those_of_the_cpu(name, device, monkeypatch):
    monkeypatch.setattr(by_query, "WORTH", 0)
    g = torch.Generator().manual_seed(0)
    scores, query = torch.rand(40, generator=g), torch.randint(-3, 9, (40,), generator=g) ** 2
    found = []
    for where in (torch.device("cpu"), device):
        leaf = scores.detach().to(where).requires_grad_()
        value = LOSSES[name]().from_lists(leaf, torch.arange(40, device=where) % 3 == 0, query.to(where))
        value.backward()
        found.append((value.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("cls", [BinomialDevianceLoss, HistogramLoss, TieAwareAPLoss, CrossEntropyLoss])
def test_a_baseline_is_that_of_the_cpu(cls, device, dtype):
    embeddings, labels, _ = batch()
    torch.manual_seed(0)
    loss = cls(P, DIM).double() if cls is CrossEntropyLoss else cls()
    expected = value_and_gradient(loss, embeddings, labels)
    got = value_and_gradient(loss.to(device, dtype), embeddings.to(device, dtype), labels.to(device))
    for mine, theirs in zip(got, expected, strict=True):
        near(mine, theirs, dtype)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_half_precision_is_that_of_the_same_numbers(name, device):
    """Embeddings of autocast are computed in float32: no number but their own is rounded."""
    embeddings, labels, _ = batch(name)
    for half in (torch.bfloat16, torch.float16):
        rounded = embeddings.to(device, half)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            got = LOSSES[name]().to(device)(rounded, labels.to(device))
        want = LOSSES[name]().to(device)(rounded.float(), labels.to(device))
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_training_in_half_precision_learns_and_a_scaler_does_not_change_what(half, device):
    """A GradScaler multiplies the loss: with a blackbox another lambda, if the loss did not see to it."""
    embeddings, labels, _ = batch()
    images, labels = embeddings.float().to(device), labels.to(device)
    found = []
    for scale in (1.0, 1024.0):
        torch.manual_seed(0)
        model = nn.Linear(DIM, DIM).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler(device.type, init_scale=scale)
        loss, values = losses.RaMBOAPLoss(), []
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=half):
                value = loss(model(images), labels)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            values.append(float(value.detach()))
        found.append(values)
    assert found[0][-1] < found[0][0]
    assert found[1] == pytest.approx(found[0], rel=0.02)


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_waits_for_the_gpu_where_positives_are_promised(name, gpu):
    embeddings, labels, positives = batch(name)
    loss = LOSSES[name](positives=positives).to(gpu)
    leaf, labels = embeddings.float().to(gpu).requires_grad_(), labels.to(gpu)
    loss(leaf, labels).backward()  # what is made once is made
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(leaf, labels).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("name", ["smooth_ap", "supap", "roadmap", "pnp", "recall_at_k", "info_nce", "fastap"])
def test_a_loss_compiles_into_one_graph(name, gpu):
    embeddings, labels, positives = batch(name)
    loss = LOSSES[name](positives=positives)
    given = embeddings.float().to(gpu), labels.to(gpu)
    want = value_and_gradient(loss, *given)
    for mine, theirs in zip(value_and_gradient(torch.compile(loss, fullgraph=True), *given), want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("name", ["smooth_ap", "supap", "roadmap", "pnp", "recall_at_k", "rambo_ap"])
def test_a_training_step_is_a_cuda_graph(name, gpu):
    """Captured once, replayed with other images: the step that plain code takes."""
    embeddings, labels, positives = batch(name)
    loss = LOSSES[name](positives=positives).to(gpu)
    torch.manual_seed(0)
    model, labels = nn.Linear(DIM, DIM).to(gpu), labels.to(gpu)
    images = embeddings.float().to(gpu)

    def step() -> Tensor:
        for parameter in model.parameters():
            parameter.grad = None
        value: Tensor = loss(model(images), labels)
        value.backward()
        return value

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    gradients = [parameter.grad for parameter in model.parameters()]
    images.copy_(batch(name, seed=1)[0])
    graph.replay()
    got = [captured.detach().clone(), *(gradient.clone() for gradient in gradients)]
    want = [step().detach(), *(parameter.grad for parameter in model.parameters())]
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------------------------------- memories and ranks


@pytest.mark.parametrize("name", ["supap", "rambo_recall", "pnp"])
def test_a_memory_holds_and_ranks_what_it_does_on_the_cpu(name, device, dtype):
    def run(where: torch.device, kind: torch.dtype) -> tuple[list[Tensor], CrossBatchMemory]:
        memory = CrossBatchMemory(LOSSES[name](), size=40, dtype=kind).to(where)
        found = []
        for step in range(3):
            embeddings, labels, _ = batch(seed=step)
            ids = torch.arange(len(labels)) + 20 * step
            found += value_and_gradient(memory, embeddings.to(where, kind), labels.to(where), ids=ids.to(where))
        return found, memory

    (got, mine), (want, theirs) = run(device, dtype), run(torch.device("cpu"), torch.float64)
    for value, expected in zip(got, want, strict=True):
        near(value, expected, dtype)
    assert torch.equal(mine.ids.cpu(), theirs.ids) and torch.equal(mine.labels.cpu(), theirs.labels)
    near(mine.embeddings, theirs.embeddings, dtype)


@pytest.mark.parametrize("chunk", [None, 64])
@pytest.mark.parametrize(
    "source",
    [Soft(Sigmoid(0.1), Sigmoid(0.1)), Soft(Heaviside(), SupStep(0.05, 10.0, 0.1))],
    ids=["smooth", "sup"],
)
def test_ranks_of_ragged_lists_are_those_of_the_cpu(source, chunk, device, dtype, problem):
    source = Soft(source.pos, source.neg, chunk=chunk)
    given = problem(seed=3)
    got_scores = given.scores.to(device, dtype).requires_grad_()
    want_scores = given.scores.clone().requires_grad_()
    got = source(got_scores, given.relevant.to(device), given.valid.to(device))
    want = source(want_scores, given.relevant, given.valid)
    for ranks in (got, want):
        (1 / ranks.rank).sum().backward()
    near(got.rank.detach(), want.rank.detach(), dtype)
    near(got_scores.grad, want_scores.grad, dtype)


@pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "index"])
def test_exact_ranks_count_ties_as_on_the_cpu(ties, device, problem):
    given = problem(seed=4, ties=True)
    got = exact_ranks(given.scores.to(device).float(), given.relevant.to(device), given.valid.to(device), ties=ties)
    want = exact_ranks(*given, ties=ties)
    assert torch.equal(got.rank.cpu().double(), want.rank.double())


# --------------------------------------------------------------------------------------------- evaluation and search


METRICS = {
    "AP": metrics.average_precision,
    "AP@3": lambda scores, relevant: metrics.average_precision_at_k(scores, relevant, k=3),
    "mAP": metrics.mean_average_precision,
    "mAP@R": metrics.map_at_r,
    "R@2": lambda scores, relevant: metrics.recall_at_k(scores, relevant, k=2),
    "Recall@2": lambda scores, relevant: metrics.item_recall_at_k(scores, relevant, k=2),
    "refined R@2": lambda scores, relevant: metrics.refined_recall_at_k(scores, relevant, k=2),
    "P@3": lambda scores, relevant: metrics.precision_at_k(scores, relevant, k=3),
    "R-precision": metrics.r_precision,
    "reciprocal rank": metrics.reciprocal_rank,
    "fall-out@2": lambda scores, relevant: metrics.fall_out_at_k(scores, relevant, k=2),
    "DCG": metrics.dcg,
    "NDCG@5": lambda scores, relevant: metrics.ndcg(scores, relevant, k=5),
    "H-AP": metrics.hierarchical_ap,
    "ROC AUC": metrics.roc_auc,
    "AUC of the hardest": metrics.auc_hardest,
    "FNMR": lambda scores, relevant: metrics.fnmr_at_fmr(scores, relevant, fmr=0.1),
    "ranks of scores": lambda scores, relevant: metrics.average_ranks(scores),
    "Spearman": lambda scores, relevant: metrics.spearman(scores, scores.flip(1)),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_that_of_the_cpu_and_stays_on_the_device(name, device):
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(6, 20, generator=generator, dtype=torch.float64)
    relevant = torch.rand(6, 20, generator=generator) > 0.7
    relevant[:, 0], relevant[:, 1] = True, False
    got = METRICS[name](scores.to(device), relevant.to(device))
    assert got.device.type == device.type
    torch.testing.assert_close(got.cpu(), METRICS[name](scores, relevant), rtol=1e-12, atol=0)


def test_measures_of_embeddings_are_those_of_the_cpu(device):
    embeddings, labels, _ = batch()
    found = []
    for where in (torch.device("cpu"), device):
        e, y = embeddings.to(where), labels.to(where)
        gap = metrics.decomposability_gap(e @ e.T, y[:, None] == y, torch.arange(len(y), device=where) // 8)
        found.append([metrics.dists_intra(e, y), metrics.dists_inter(e, y), metrics.nmi(y, y // 2), *gap.tolist()])
    assert found[1] == pytest.approx(found[0], rel=1e-9)


@pytest.fixture
def codes() -> Iterator[tuple[Tensor, Tensor]]:
    """Whole numbers, whose products no device rounds: many ties, and one right answer to each question."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 12, (160,), generator=generator)
    centres = torch.randint(-2, 3, (12, 9), generator=generator)
    return (centres[labels] + torch.randint(-1, 2, (160, 9), generator=generator)).float(), labels


NAMED = ("R@1", "mAP@R", "AP", "MRR", "NDCG", "ROC AUC", "AUC_hardest", "AP@10", "FNMR@FMR=0.1")


@pytest.mark.parametrize("block", [None, 7])
def test_an_evaluation_finds_what_the_cpu_finds_in_float64(block, codes, device):
    embeddings, labels = codes
    given = {"similarity": "inner product", "metrics": NAMED, "intervals": 50}
    got = evaluate(embeddings, labels, device=device, block=block, **given)
    want = evaluate(embeddings.double(), labels, **given)
    assert got.values == pytest.approx(want.values, rel=1e-6)
    for name, values in want.per_query.items():
        assert torch.as_tensor(got.per_query[name]) == pytest.approx(torch.as_tensor(values), rel=1e-6), name


def test_the_best_items_and_their_order_are_those_of_the_cpu(codes, device):
    embeddings, _ = codes
    scores, index = topk(embeddings[:50].to(device), embeddings.to(device), 11)
    want_scores, want = topk(embeddings[:50].double(), embeddings.double(), 11)
    assert torch.equal(index.cpu(), want) and torch.equal(scores.cpu().double(), want_scores)


# ---------------------------------------------------------------------------------------- the device that is pretended


def test_the_pretended_device_refuses_what_a_gpu_refuses():
    with pretended.pretended() as device:
        there, here = torch.ones(2, 3, device=device), torch.ones(2, 3)
        assert there.device == device and there.is_cuda and (there + 1).device == device
        for mixed in (
            lambda: there + here,
            lambda: there.add_(here),
            lambda: torch.cat([there, here]),
            lambda: here[torch.zeros(1, dtype=torch.long, device=device)],
            lambda: torch.where(here > 0, there, there),
        ):
            with pytest.raises(RuntimeError, match="wants all tensors on one device"):
                mixed()
        with pytest.raises(TypeError, match=r"take \.cpu\(\) first"):
            there.numpy()
        there[0] = 5  # a number, and a view that is written to
        there[:, 1].mul_(2)
        assert there.tolist() == [[5, 10, 5], [1, 2, 1]] and float(there.sum()) == 24
        leaf = there.clone().requires_grad_()
        (leaf @ here.to(device).T).sum().backward()
        assert leaf.grad.device == device and leaf.grad.cpu().tolist() == [[2.0] * 3] * 2


# -------------------------------------------------------------------------------- detection, large batches, several


@pytest.mark.parametrize("name", DETECTION_LOSSES)
def test_a_detection_loss_and_its_memory_are_those_of_the_cpu(name, device, dtype):
    def run(where: torch.device, kind: torch.dtype) -> list[Tensor]:
        loss, found = DETECTION_LOSSES[name](memory=2).to(where), []
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            scores = torch.randn(90, 4, generator=generator, dtype=torch.float64)
            targets = torch.rand(90, 4, generator=generator) > 0.9
            found += value_and_gradient(loss, scores.to(where, kind), targets.to(where))
        return found

    for got, want in zip(run(device, dtype), run(torch.device("cpu"), torch.float64), strict=True):
        near(got, want, dtype)


def test_embedding_in_parts_has_the_gradient_of_the_whole_batch(device):
    embeddings, labels, _ = batch()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DIM, 32), nn.Tanh(), nn.Linear(32, 8)).to(device)
    loss, found = losses.SupAPLoss(), []
    for parts in (None, 5):
        model.zero_grad()
        if parts is None:
            out = model(embeddings.float().to(device))
        else:  # images stay where they are until their turn comes
            out = embed_in_parts(model, embeddings.float(), parts, device=device)
        loss(out, labels.to(device)).backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))


def test_a_run_begins_as_on_the_cpu_and_goes_on_after_its_end(gpu, tmp_path):
    photos = make_photos(tmp_path / "photos")
    settings = small(photos, "memory=sum", "memory.warmup=0", "memory.size=16", "checkpoint_minutes=0")
    begins_as_on_the_cpu(retrieval.train, ["train"], settings, tmp_path)


def _over_gpus(rank: int, processes: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=processes)
    try:
        for name in ("supap", "rambo_ap"):
            embeddings, labels, _ = batch(name)
            mine = slice(rank * P * K // processes, (rank + 1) * P * K // processes)
            given = embeddings[mine].cuda(), labels[mine].cuda()
            value, gradient = value_and_gradient(GlobalBatch(LOSSES[name]()), *given)
            want, whole = value_and_gradient(LOSSES[name](), embeddings, labels)
            near(value, want, torch.float64)
            near(gradient / processes, whole[mine], torch.float64)  # what DistributedDataParallel's mean makes of it
    finally:
        leave()


def test_two_gpus_have_the_loss_of_one_batch(gpu):
    processes = torch.cuda.device_count()
    if processes < 2 or (P * K) % processes:
        pytest.skip(f"needs two GPUs; there is {processes}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_over_gpus, (processes, port), nprocs=processes)
