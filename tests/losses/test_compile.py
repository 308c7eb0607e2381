"""Losses that promise their number of positives: the host never waits for a GPU, and torch.compile gets one graph.

No GPU is needed to prove it. Where values are out of reach (`ranks.lists.asynchronous`), CPU tensors take the same way
as CUDA tensors, while a dispatch mode refuses what would synchronise; and tensors that only pretend to be on CUDA go
through the real branches, where reading a value is an error.
"""

from __future__ import annotations

import inspect
import shutil

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from rankgrad import losses, metrics
from rankgrad.losses import LOSSES, RankLoss
from rankgrad.ranks import Lists, Soft, exact_ranks
from rankgrad.ranks.relaxations import Heaviside, Sigmoid
from rankgrad.ranks.relevance import from_labels

CLASSES, PER_CLASS = 4, 3
BLACKBOX = [name for name, cls in LOSSES.items() if "lambda_" in inspect.signature(cls).parameters]
RELAXED = [name for name, cls in LOSSES.items() if isinstance(getattr(cls(), "ranks", None), Soft)]
# What a fast run compiles: one of ranks and one of scores. ROADMAP contains SupAP and the calibration.
COMPILED_FIRST = ["roadmap", "fastap"]


def embeddings_and_labels(name: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, int]:
    """A batch for a loss, and how many relevant items each query has; graded losses get two levels of labels."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(CLASSES * PER_CLASS, 5, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    if not LOSSES[name].levels:
        return embeddings, labels, PER_CLASS - 1
    return embeddings, torch.stack([labels // 2, labels], 1), 2 * PER_CLASS - 1


def value_and_gradient(loss, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward()
    return value.detach(), leaf.grad


@pytest.fixture
def out_of_reach(monkeypatch):
    """Values count as out of the host's reach, as on CUDA (`ranks.lists.asynchronous`)."""
    # the compiler notes the functions that it knows when it is first used: it must find the real one
    torch.compile(torch.neg, backend="eager")(torch.zeros(1))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


class NothingIsRead(TorchDispatchMode):
    """Refuses the operators that make the host wait for a GPU: those that return a number or choose their own size."""

    waiting = frozenset(
        "_local_scalar_dense item is_nonzero equal allclose nonzero nonzero_numpy argwhere bincount _unique _unique2 "
        "unique_dim unique_consecutive masked_select histc".split()
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        assert name not in self.waiting, f"{name} waits for the device"
        if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            assert all(t is None or t.dtype != torch.bool for t in args[1]), f"{name} by a mask waits for the device"
        result = func(*args, **kwargs)
        if name in ("_to_copy", "copy_"):
            ends = {t.device.type for t in (*args, result) if isinstance(t, Tensor)}
            assert len(ends) == 1, f"{name} from one device to another waits"
        return result


def test_the_mode_refuses_what_waits():
    numbers = torch.tensor([1.0, 0.0])
    for waits in (
        lambda: bool(numbers[0] > 0),
        lambda: numbers.nonzero(),
        lambda: numbers[numbers > 0],
        lambda: torch.bincount(numbers.long()),
        lambda: numbers.sum().item(),
        lambda: torch.unique(numbers),
    ):
        with pytest.raises(AssertionError, match="waits"), NothingIsRead():
            waits()
    with NothingIsRead():
        numbers.topk(1).indices.sort()


# --------------------------------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("name", LOSSES)
def test_promised_positives_change_no_number(name):
    embeddings, labels, positives = embeddings_and_labels(name)
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    for got, want in zip(
        value_and_gradient(LOSSES[name](positives=positives), embeddings, labels), expected, strict=True
    ):
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("promised", [True, False])
def test_numbers_are_the_same_where_values_are_out_of_reach(name, promised, request):
    embeddings, labels, positives = embeddings_and_labels(name)
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    request.getfixturevalue("out_of_reach")
    loss = LOSSES[name](positives=positives if promised else None)
    for got, want in zip(value_and_gradient(loss, embeddings, labels), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("graded", [False, True])
def test_lists_are_the_same_where_values_are_out_of_reach(problem, graded, request):
    given = problem(graded=graded)
    expected = Lists.of(*given)
    request.getfixturevalue("out_of_reach")
    got = Lists.of(*given)
    assert (got.sizes, got.graded, got.complete) == (expected.sizes, expected.graded, expected.complete)
    for field in ("query", "item", "gain", "slot", "count", "rest", "length"):
        assert torch.equal(getattr(got, field), getattr(expected, field)), field
    nobody = Lists.of(given.scores, torch.zeros_like(given.relevant), None)
    assert len(nobody.query) == nobody.width == 0
    assert Lists.of(given.scores[:, :0], given.relevant[:, :0], None).sizes == [0] * len(given.scores)


# ---------------------------------------------------------------------------------------------------- nothing is read


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_is_read_back_where_positives_are_promised(name, out_of_reach):
    embeddings, labels, positives = embeddings_and_labels(name)
    loss = LOSSES[name](positives=positives)
    leaf = embeddings.requires_grad_()
    with NothingIsRead():
        loss(leaf, labels).backward()
    assert leaf.grad.isfinite().all()


@pytest.fixture(scope="module")
def imagined_cuda() -> None:
    """Tensors of no content on a device that need not be there; older torch asks for its driver all the same."""
    try:
        with FakeTensorMode():
            from_labels(torch.empty(4, dtype=torch.long, device="cuda"))
    except RuntimeError as error:
        if "driver" not in str(error):
            raise
        pytest.skip(f"torch {torch.__version__}: {str(error).partition(chr(10))[0]}")


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.usefixtures("imagined_cuda")
def test_tensors_on_cuda_take_a_way_without_reading(name, monkeypatch):
    if name in BLACKBOX:  # they take a gradient on the way, for which autograd itself wants a device
        monkeypatch.setattr(torch.autograd, "grad", lambda value, leaves, **_: tuple(map(torch.zeros_like, leaves)))
    _, labels, positives = embeddings_and_labels(name)
    with FakeTensorMode():
        loss = LOSSES[name](positives=positives).to("cuda")
        with NothingIsRead():
            embeddings = torch.empty(len(labels), 5, device="cuda", requires_grad=True)
            fake_labels = torch.empty(labels.shape, dtype=torch.long, device="cuda")
            value = loss(embeddings, fake_labels)
    assert value.device.type == "cuda" and value.shape == () and value.requires_grad


def test_references_relevance_gains_and_include_self_are_not_read_either(out_of_reach):
    embeddings, labels, _ = embeddings_and_labels("supap")
    gains = (labels.unsqueeze(1) == labels).double() / 2
    with NothingIsRead():
        losses.SupAPLoss(positives=PER_CLASS)(embeddings, labels, ref_emb=embeddings, ref_labels=labels)
        losses.SupAPLoss(positives=PER_CLASS, include_self=True)(embeddings, labels)
        losses.NDCGLoss(positives=PER_CLASS).from_scores(embeddings @ embeddings.T, gains)
        losses.SupAPLoss(positives=PER_CLASS - 1)(embeddings, labels, ids=torch.arange(len(labels)))


@pytest.mark.parametrize("name", RELAXED)
def test_lists_of_any_length_are_read_once(name, out_of_reach, monkeypatch):
    embeddings, labels, _ = embeddings_and_labels(name)
    readings = []

    def tolist(tensor: Tensor) -> list[int]:
        readings.append(tensor.shape)
        with torch.utils._python_dispatch._disable_current_modes():
            return list(map(int, tensor.numpy()))

    monkeypatch.setattr(Tensor, "tolist", tolist)
    with NothingIsRead():
        LOSSES[name]()(embeddings.requires_grad_(), labels).backward()
    assert readings == [(len(labels),)]


# ------------------------------------------------------------------------------------------------------- the promise


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reachable", [True, False])
def test_broken_promise_is_an_error_and_never_a_number(name, reachable, request):
    embeddings, labels, positives = embeddings_and_labels(name)
    if not reachable:
        request.getfixturevalue("out_of_reach")
    error = ValueError if reachable else RuntimeError  # RuntimeError: what a device-side assertion becomes on a CPU
    uneven = labels.clone()
    uneven[0] = labels[-1]  # 2, 3 and 4 of a class: as many pairs in all as somebody might expect
    for broken, promised in ((labels, positives - 1), (labels, positives + 1), (uneven, positives)):
        with pytest.raises(error, match=f"positives={promised} promises exactly {promised} relevant valid items"):
            LOSSES[name](positives=promised)(embeddings, broken)
    with pytest.raises(ValueError, match="positives=999 promises"):
        LOSSES[name](positives=999)(embeddings, labels)


@pytest.mark.parametrize("reachable", [True, False])
def test_ranks_hold_their_callers_to_the_promise_too(problem, reachable, request):
    given = problem()  # 1 .. 7 relevant items and none
    if not reachable:
        request.getfixturevalue("out_of_reach")
    with pytest.raises(ValueError if reachable else RuntimeError, match="positives=2 promises exactly 2"):
        Soft(Heaviside(), Sigmoid())(*given, positives=2)


def test_as_many_pairs_in_all_but_not_for_each_query_is_a_broken_promise(out_of_reach):
    relevant = torch.tensor([[True, True, True], [True, False, False]])
    with pytest.raises(RuntimeError, match="positives=2"):
        Lists.of(torch.rand(2, 3), relevant, None, positives=2)


@pytest.mark.parametrize("wrong", [0, -1, True, 2.0, "2"])
def test_promise_that_is_no_count_is_refused(wrong):
    with pytest.raises(ValueError, match="integer >= 1; got"):
        losses.SmoothAPLoss(positives=wrong)


def test_ranks_of_ones_own_need_not_know_of_promises_and_may():
    embeddings, labels, positives = embeddings_and_labels("smooth_ap")
    told = []

    def plain(scores, relevant, valid):
        return exact_ranks(scores, relevant, valid)

    def knowing(scores, relevant, valid, positives):
        told.append(positives)
        return exact_ranks(scores, relevant, valid)

    values = [
        RankLoss(ranks, metric=metrics.average_precision, positives=positives)(embeddings, labels)
        for ranks in (plain, knowing)
    ]
    assert values[0] == values[1] and told == [positives]
    with pytest.raises(ValueError, match="promises"):
        RankLoss(plain, metric=metrics.average_precision, positives=positives + 1)(embeddings, labels)


def test_promise_is_printed_where_it_is_given():
    assert "positives" not in repr(losses.SmoothAPLoss())
    assert repr(losses.SmoothAPLoss(positives=3)).endswith("positives=3)")


# ---------------------------------------------------------------------------------------------------------- compiled


def compiled(loss, **options):
    torch._dynamo.reset()
    return torch.compile(loss, **options)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in COMPILED_FIRST else [pytest.mark.slow])
        for name in LOSSES
        if name not in BLACKBOX
    ],
)
def test_compiled_loss_is_one_graph_with_the_numbers_of_the_eager_one(name):
    embeddings, labels, positives = embeddings_and_labels(name, torch.float32)
    loss = compiled(LOSSES[name](positives=positives), backend="aot_eager", fullgraph=True)
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    for got, want in zip(value_and_gradient(loss, embeddings, labels), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks at it itself
@pytest.mark.parametrize("name", LOSSES)
def test_compiled_loss_of_any_lists_breaks_the_graph_and_no_number(name):
    embeddings, labels, _ = embeddings_and_labels(name, torch.float32)
    expected = value_and_gradient(LOSSES[name](), embeddings, labels)
    got = value_and_gradient(compiled(LOSSES[name](), backend="aot_eager"), embeddings, labels)
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_compiled_loss_still_refuses_broken_promises_and_nan():
    embeddings, labels, positives = embeddings_and_labels("calibration", torch.float32)
    loss = compiled(losses.CalibrationLoss(positives=positives), backend="aot_eager", fullgraph=True)
    loss(embeddings, labels)
    with pytest.raises(RuntimeError, match=f"positives={positives} promises"):
        loss(embeddings, labels % 2)
    with pytest.raises(RuntimeError, match="embeddings: it holds NaN"):
        loss(torch.full_like(embeddings, torch.nan), labels)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's own backend builds C++ and there is no g++")
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the compiler warns of its own parts
def test_compiled_machine_code_has_the_numbers_of_the_eager_loss():
    embeddings, labels, positives = embeddings_and_labels("roadmap", torch.float32)
    loss = compiled(losses.ROADMAPLoss(positives=positives), fullgraph=True)
    expected = value_and_gradient(losses.ROADMAPLoss(), embeddings, labels)
    for got, want in zip(value_and_gradient(loss, embeddings, labels), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
