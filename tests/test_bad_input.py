"""Losses and metrics on input that is wrong, empty or degenerate: a clear error, or what the documentation says."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from sweeps import CALIBRATED
from torch import Tensor

from rankgrad import losses, metrics
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.evaluation import METRICS, Protocol, evaluate
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.losses import LOSSES, RankLoss
from rankgrad.ranks import Blackbox, Soft, blackbox_rank, exact_ranks, soft_ranks
from rankgrad.ranks.relaxations import Exponential, Heaviside, Sigmoid, SupStep
from rankgrad.search import topk

GRADED = [name for name, cls in LOSSES.items() if cls.graded]
SOFT = [name for name, cls in LOSSES.items() if cls.soft]  # their targets may be negative
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def embeddings(rows: int = 6, dim: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def lists(seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(4, 6, generator=g), torch.rand(4, 6, generator=g) < 0.5


# -------------------------------------------------------------------------------------------------- NaN and infinity


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", LOSSES)
def test_a_score_of_nan_or_infinity_is_an_error_that_names_the_row(name, bad):
    scores, relevant = lists()
    scores[2, 0] = bad
    with pytest.raises(ValueError, match="scores: .*NaN.*, first in row 2"):
        LOSSES[name]().from_scores(scores, relevant)


# Blackbox ranks and bins of NaN are numbers: that is what the check is for.
COUNTED = ("rambo_recall", "rambo_ap", "spearman", "fastap", "softbin_ap")


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in COUNTED])
def test_nan_is_not_hidden_where_the_check_is_turned_off(name):
    rows = embeddings()
    rows[3] = math.nan
    assert LOSSES[name](check_finite=False)(rows, LABELS).isnan()


GROWING = {
    **LOSSES,
    "pnp Iu": lambda **options: losses.PNPLoss("Iu", **options),
    "pnp O": lambda **options: losses.PNPLoss("O", **options),
    "calibration avg_non_zero": lambda **options: losses.CalibrationLoss(aggregation="avg_non_zero", **options),
    "ndcg of a steep step": lambda **options: RankLoss(
        Soft(Heaviside(), SupStep(0.002, 500.0, 0.01)), metric=metrics.ndcg, **options
    ),
}
# An exponential step and a square overflow earlier, which is an error of its own: docs/numerics.md.
LINEAR = [name for name in GROWING if name not in ("info_nce", "margin_mse")]
LIMITS = {torch.float16: 6e4, torch.bfloat16: 9e29, torch.float32: 1e30, torch.float64: 1e300}


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("name", LINEAR)
def test_scores_up_to_the_promised_limit_give_a_finite_loss_and_gradient(name, dtype):
    g = torch.Generator().manual_seed(0)
    relevant = torch.rand(4, 300, generator=g) < 0.3
    for share in (1e-26, 1e-12, 1.0):
        spread = torch.rand(4, 300, generator=g, dtype=torch.float64) * 2 - 1
        scores = (spread * share * LIMITS[dtype]).to(dtype).requires_grad_()
        value = GROWING[name]().from_scores(scores, relevant)
        value.backward()
        assert value.isfinite() and (scores.grad.isfinite().all() or dtype == torch.float16)  # float16 ends at 65504


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, "1e\\+30"), (torch.float64, "1e\\+300")], ids=str)
@pytest.mark.parametrize("name", GROWING)
def test_scores_beyond_the_limit_are_an_error(name, dtype, limit):
    scores, relevant = lists()
    scores = scores.to(dtype)
    scores[1, 2] = torch.finfo(dtype).max
    with pytest.raises(ValueError, match=f"scores: it holds NaN, infinity or numbers beyond {limit}, first in row 1"):
        GROWING[name]().from_scores(scores, relevant)


@pytest.mark.parametrize("length", [1e13, 1e16, 1e20, 1e30])
@pytest.mark.parametrize("name", LINEAR)
def test_products_that_overflow_are_an_error_and_no_nan(name, length):
    rows = (length * embeddings()).requires_grad_()
    loss = GROWING[name](normalize=False)
    if length > 1e15:
        with pytest.raises(ValueError, match="products of embeddings.*NaN"):
            loss(rows, LABELS)
        return
    value = loss(rows, LABELS)
    value.backward()
    assert value.isfinite() and rows.grad.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("length", [1e-30, 1e38])
def test_embeddings_that_are_normalised_may_have_any_length(name, length):
    rows = (length * embeddings().clamp(-3, 3)).requires_grad_()
    value = LOSSES[name]()(rows, LABELS)
    value.backward()
    assert value.isfinite() and rows.grad.isfinite().all()


def test_step_that_overflows_where_scores_do_not_is_an_error():
    scores, relevant = torch.tensor([[0.1, 0.2], [0.0, 1e25]]), torch.tensor([[True, False]] * 2)
    loss = losses.InfoNCELoss(0.05)
    assert loss.from_scores(scores[:1], relevant[:1]).isfinite()
    with pytest.raises(ValueError, match="overflows: .* first in query 1"):
        loss.from_scores(scores, relevant)
    assert losses.InfoNCELoss(0.05, check_finite=False).from_scores(scores, relevant).isinf()
    far = torch.tensor([[0.0, 1e9]], requires_grad=True)  # 2e10 temperatures apart
    value = loss.from_scores(far, relevant[:1])
    value.backward()
    assert value.isfinite() and far.grad.isfinite().all()


def test_squares_that_overflow_are_an_error_and_those_below_are_finite():
    scores, relevant = torch.tensor([[0.1, 0.2], [0.0, 1e25]]), torch.tensor([[True, False]] * 2)
    loss = losses.MarginMSELoss()
    for given, targets in ((scores, relevant), (scores[[0, 0]], torch.tensor([[0.0, 1.0], [0.0, 1e25]]))):
        with pytest.raises(ValueError, match="overflows: .* first in query 1"):
            loss.from_scores(given, targets)
    far = torch.tensor([[0.0, 1e18]], requires_grad=True)
    value = loss.from_scores(far, 1e18 * relevant[:1].float())
    value.backward()
    assert value.isfinite() and far.grad.isfinite().all()


@pytest.mark.parametrize("gain", [1e-40, 1e-30, 1e30])
@pytest.mark.parametrize("name", [name for name in GRADED if name not in ("supndcg", "lambda", "margin_mse")])  # 2^g
def test_gains_of_any_size_give_a_finite_loss_and_gradient(name, gain):
    scores, relevant = lists()
    loss = LOSSES[name](**({"highest": 1e30} if name == "grade_bce" else {}))
    value = loss.from_scores(scores.requires_grad_(), gain * relevant)
    value.backward()
    assert value.isfinite() and scores.grad.isfinite().all()


@pytest.mark.parametrize("name", GRADED)
def test_gains_that_float32_does_not_have_are_refused_or_irrelevant_with_float32_scores(name):
    scores, relevant = lists()
    grades = relevant * torch.arange(1.0, 7, dtype=torch.float64)
    limit = r"grades .*highest = 1;" if name == "grade_bce" else r"(gains|targets) .*at most 1e\+30"
    with pytest.raises(ValueError, match=f"relevant: {limit}"):
        LOSSES[name]().from_scores(scores, 1e300 * grades)
    if name not in ("spearman", "grade_bce"):  # one needs only the order of the gains, one trains on irrelevant items
        assert LOSSES[name]().from_scores(scores, 1e-60 * grades) == 0


def test_gains_whose_power_overflows_are_an_error():
    scores, relevant = lists()
    for loss in (losses.NDCGLoss(gain="exp2"), losses.SupNDCGLoss(), losses.LambdaLoss()):
        assert loss.from_scores(scores, 64.0 * relevant).isfinite()
        if isinstance(loss, losses.LambdaLoss):  # it needs only shares of the largest gain
            assert loss.from_scores(scores, 200.0 * relevant).isfinite()
            continue
        with pytest.raises(ValueError, match="the loss overflows"):
            loss.from_scores(scores, 200.0 * relevant)


NAN_METRICS = {
    "average_precision": metrics.average_precision,
    "map_at_r": metrics.map_at_r,
    "recall_at_k": metrics.recall_at_k,
    "ndcg": metrics.ndcg,
    "reciprocal_rank": metrics.reciprocal_rank,
    "hierarchical_ap": metrics.hierarchical_ap,
    "roc_auc": metrics.roc_auc,
    "auc_hardest": metrics.auc_hardest,
}


@pytest.mark.parametrize("name", NAN_METRICS)
def test_metric_of_nan_scores_is_an_error_or_nan(name):
    scores, relevant = torch.tensor([[0.3, math.nan, 0.5]]), torch.tensor([[True, False, False]])
    try:
        value = NAN_METRICS[name](scores, relevant)
    except ValueError as error:
        assert "NaN" in str(error)
    else:
        assert value.isnan().all()


def test_metric_of_infinite_scores_is_an_error_or_right():
    scores, relevant = torch.tensor([[-math.inf, 0.2, 0.5]]), torch.tensor([[True, False, False]])
    try:
        found = metrics.roc_auc(scores, relevant).item(), metrics.average_precision(scores, relevant).item()
    except ValueError:
        return
    assert found == pytest.approx((0.0, 1 / 3))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", GRADED)
def test_gain_that_is_negative_or_not_finite_is_an_error_that_names_the_row(name, bad):
    scores, relevant = lists()
    gains = relevant.float()
    gains[2, 3] = bad
    if name in SOFT and bad < 0:
        assert LOSSES[name]().from_scores(scores, gains).isfinite()
        return
    what = "targets" if name in SOFT else "grades" if name == "grade_bce" else "gains"
    with pytest.raises(ValueError, match=rf"relevant: {what} .*, first in row 2"):
        LOSSES[name]().from_scores(scores, gains)


@pytest.mark.parametrize("bad", [-1.0, math.nan])
def test_metric_of_a_gain_that_is_negative_or_nan_is_an_error(bad):
    with pytest.raises(ValueError, match="gain"):
        metrics.ndcg(torch.tensor([[0.3, 0.1, 0.5]]), torch.tensor([[bad, 1.0, 0.0]]))


# ------------------------------------------------------------------------------------------------ shapes and dtypes


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "rows",
    [torch.zeros(6), torch.zeros(1, 6, 4), torch.zeros(6, 4, dtype=torch.long), torch.zeros(6, 4, dtype=torch.cfloat)],
    ids=lambda t: f"{t.dtype}{list(t.shape)}",
)
def test_embeddings_that_are_no_float_matrix_are_an_error_that_shows_them(name, rows):
    with pytest.raises(ValueError, match=rf"embeddings must be a float tensor \[row, dim\]; got {rows.dtype}"):
        LOSSES[name]()(rows, LABELS)


def test_references_of_another_width_are_an_error():
    with pytest.raises(ValueError, match="4 dimensions"):
        losses.SupAPLoss()(embeddings(), LABELS, ref_emb=embeddings(dim=3), ref_labels=LABELS)


def test_half_precision_embeddings_against_float32_references_are_computed_in_float32():
    rows, refs = embeddings().half(), embeddings(5, seed=1)
    loss = losses.SupAPLoss()
    value = loss(rows, LABELS, ref_emb=refs, ref_labels=LABELS[:5])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(rows.float(), LABELS, ref_emb=refs, ref_labels=LABELS[:5]))


def test_float32_embeddings_against_float64_references_are_computed_in_float64():
    loss = losses.SupAPLoss()
    mixed = loss(embeddings(), LABELS, ref_emb=embeddings().double(), ref_labels=LABELS)
    wide = loss(embeddings().double(), LABELS, ref_emb=embeddings().double(), ref_labels=LABELS)
    assert mixed.dtype == torch.float64
    torch.testing.assert_close(mixed, wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("scores", "relevant", "valid", "word"),
    [
        (torch.zeros(6), torch.zeros(6, dtype=torch.bool), None, r"scores must be a float tensor \[query, item\]"),
        (torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.bool), None, "scores must be a float"),
        (torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.bool), None, "relevant must have the shape of scores"),
        (torch.zeros(2, 3), torch.full((2, 3), 65), None, r"relevant\.bool\(\)|levels must lie in 0 \.\. 64"),
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3), "valid must be bool"),
        (
            torch.zeros(2, 3),
            torch.zeros(2, 3, dtype=torch.bool),
            torch.ones(3, 2, dtype=torch.bool),
            "valid must be bool",
        ),
    ],
    ids=["vector", "integer scores", "relevance of another shape", "integer relevance", "float mask", "turned mask"],
)
def test_lists_that_do_not_fit_are_an_error_that_says_what_was_needed(name, scores, relevant, valid, word):
    with pytest.raises(ValueError, match=word):
        LOSSES[name]().from_scores(scores, relevant, valid)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in GRADED])
def test_gains_for_a_loss_that_knows_no_grades_are_an_error_that_names_ones_that_do(name):
    scores, relevant = lists()
    with pytest.raises(ValueError, match="HAPLoss or NDCGLoss"):
        LOSSES[name]().from_scores(scores, relevant.float())


def test_valid_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match=r"valid must be bool \(6, 6\)"):
        losses.SupAPLoss()(embeddings(), LABELS, valid=torch.ones(6, 5, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
def test_valid_that_is_not_bool_is_an_error(dtype):
    with pytest.raises(ValueError, match="valid must be bool"):
        losses.SupAPLoss()(embeddings(), LABELS, valid=torch.ones(6, 6, dtype=dtype))


# ---------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("labels", [LABELS.bool(), LABELS.view(6, 1, 1)], ids=lambda t: str(t.dtype))
def test_labels_of_no_kind_are_an_error(labels):
    with pytest.raises(ValueError, match="labels must be long"):
        losses.SmoothAPLoss()(embeddings(), labels)


@pytest.mark.parametrize(
    "labels",
    [LABELS.float(), LABELS.numpy() / 2, [0.0] * 6, [None] * 6, [object()] * 6, [[0]] * 5 + ["a"]],
    ids=["float", "numpy", "floats", "none", "objects", "ragged"],
)
def test_labels_that_number_no_classes_are_an_error(labels):
    with pytest.raises((TypeError, ValueError), match="labels (must|has no value)"):
        losses.SmoothAPLoss()(embeddings(), labels)


@pytest.mark.parametrize("name", ["smooth_ap", "h_ap"])
def test_labels_of_bytes_with_columns_are_not_taken_for_a_hierarchy(name):
    tags = torch.nn.functional.one_hot(LABELS).to(torch.uint8)
    for given in (tags, tags.numpy()):
        with pytest.raises(ValueError, match="uint8 .*bool .* or int64"):
            LOSSES[name]()(embeddings(), given)
    LOSSES[name]()(embeddings(), tags.bool())
    assert torch.equal(
        LOSSES[name]()(embeddings(), LABELS.to(torch.uint8)), LOSSES[name]()(embeddings(), LABELS)
    )  # a column of bytes can only be classes


LABELLINGS = {
    "list": lambda t: t.tolist(),
    "tuple": lambda t: tuple(t.tolist()),
    "array": lambda t: t.numpy(),
    "small array": lambda t: t.numpy().astype(np.int8),
    "unsigned array": lambda t: t.numpy().astype(np.uint64),
    "small tensor": lambda t: t.int(),
    "unsigned tensor": lambda t: t.to(torch.uint16),
    "sparse": lambda t: 10**12 * t - 7,
    "strings": lambda t: [f"class {i}" for i in t.tolist()],
    "array of strings": lambda t: np.array([f"class {i}" for i in t.tolist()]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_labels_of_any_kind_are_the_classes_they_name(name):
    loss, rows, refs = LOSSES[name]().eval(), embeddings(), embeddings(5, seed=1)
    among, against = loss(rows, LABELS), loss(rows, LABELS, ref_emb=refs, ref_labels=LABELS[1:])
    for kind, labelled in LABELLINGS.items():
        assert torch.equal(loss(rows, labelled(LABELS)), among), kind
        given = labelled(LABELS), labelled(LABELS[1:])
        assert torch.equal(loss(rows, given[0], ref_emb=refs, ref_labels=given[1]), against), kind


@pytest.mark.parametrize("convert", [lambda t: t.tolist(), lambda t: t.numpy()], ids=["lists", "numpy"])
@pytest.mark.parametrize("name", LOSSES)
def test_arrays_and_lists_serve_wherever_a_tensor_does(name, convert):
    loss, rows, refs = LOSSES[name]().eval(), embeddings().double(), embeddings(5, seed=1).double()
    scores, relevant = lists()
    scores, valid = scores.double(), torch.rand(4, 6) < 0.9
    calls = [
        (rows, {"labels": LABELS}),
        (rows, {"labels": LABELS, "ids": torch.arange(6), "valid": torch.ones(6, 6, dtype=torch.bool)}),
        (
            rows,
            {
                "labels": LABELS,
                "ref_emb": refs,
                "ref_labels": LABELS[:5],
                "ids": torch.arange(6),
                "ref_ids": torch.arange(3, 8),
            },
        ),
        (rows, {"relevant": LABELS.unsqueeze(1) == LABELS}),
        (rows, {"labels": torch.nn.functional.one_hot(LABELS).bool()}),
    ]
    for first, given in calls:
        converted = {key: convert(value) for key, value in given.items()}
        assert torch.equal(loss(convert(first), **converted), loss(first, **given))
    pairs = tuple(torch.tensor(index) for index in ([0, 1], [1, 0], [0, 1], [2, 3]))
    assert torch.equal(
        loss(convert(rows), indices_tuple=[convert(index) for index in pairs]), loss(rows, indices_tuple=pairs)
    )
    got = loss.from_scores(convert(scores), convert(relevant), convert(valid))
    assert torch.equal(got, loss.from_scores(scores, relevant, valid))
    memory = CrossBatchMemory(LOSSES[name](), 20)
    twice = CrossBatchMemory(LOSSES[name](), 20)
    for step in range(2):
        ids = torch.arange(6) + 6 * step
        assert torch.equal(memory(convert(rows), convert(LABELS), ids=convert(ids)), twice(rows, LABELS, ids=ids))


def test_what_holds_no_numbers_is_an_error_that_names_it():
    loss, rows = losses.SmoothAPLoss(), embeddings()
    for given, name in (
        ({"embeddings": [["a"]] * 6}, "embeddings"),
        ({"embeddings": [[0.1], [0.1, 0.2]]}, "embeddings"),
        ({"ids": list("abcdef")}, "ids"),
        ({"ref_emb": [object()], "ref_labels": [0]}, "ref_emb"),
        ({"valid": "all"}, "valid"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must"):
            loss(**{"embeddings": rows, "labels": LABELS} | given)
    with pytest.raises(TypeError, match="^scores must be numbers"):
        loss.from_scores([["a", "b"]], [[True, False]])


WITHOUT_NUMBERS = {
    "sparse": (lambda t: t.to_sparse(), r"dense tensor; got .*sparse_coo.*\.to_dense\(\)"),
    "meta": (lambda t: t.to("meta"), "tensor with values; got .*'meta'"),
    "nested": (lambda t: torch.nested.nested_tensor(list(t.float())), "dense tensor; got a nested"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("kind", WITHOUT_NUMBERS)
def test_a_tensor_that_does_not_store_its_numbers_is_refused_by_the_name_of_the_argument(kind):
    convert, told = WITHOUT_NUMBERS[kind]
    scores, relevant = lists()
    odd, hits, rows, labels = (convert(t) for t in (scores, relevant, embeddings(), LABELS.unsqueeze(1)))
    calls = {
        "embeddings": [
            lambda: losses.SmoothAPLoss()(rows, LABELS),
            lambda: CrossBatchMemory(losses.SmoothAPLoss(), 9, need_ids=False)(rows, LABELS),
            lambda: metrics.dists_intra(rows, LABELS),
            lambda: evaluate(rows, LABELS),
            lambda: evaluate_graded(rows, embeddings(), [{0: 1}] * 6),
        ],
        "ref_emb": [lambda: losses.SmoothAPLoss()(embeddings(), LABELS, ref_emb=rows, ref_labels=LABELS)],
        "labels": [lambda: losses.SmoothAPLoss()(embeddings(), labels), lambda: metrics.nmi(labels, LABELS)],
        "scores": [
            lambda: losses.SmoothAPLoss().from_scores(odd, relevant),
            lambda: losses.SmoothAPLoss().from_lists(odd, relevant[0]),
            lambda: metrics.average_precision(odd, relevant),
            lambda: exact_ranks(odd, relevant),
            lambda: blackbox_rank(odd, 1.0),
        ],
        "logits": [lambda: losses.SmoothAPLoss().from_classes(odd, relevant)],
        "relevant": [
            lambda: losses.SmoothAPLoss().from_scores(scores, hits),
            lambda: metrics.average_precision(scores, hits),
            lambda: soft_ranks(scores, hits, pos=Heaviside(), neg=Heaviside()),
        ],
        "valid": [lambda: losses.SmoothAPLoss().from_scores(scores, relevant, hits)],
        "queries": [lambda: topk(rows, embeddings(), 2)],
    }
    for name, of_name in calls.items():
        for call in of_name:
            with pytest.raises(TypeError, match=f"^{name} must be a {told}"):
                call()


@pytest.mark.parametrize("items", [60, pytest.param(20_000, marks=pytest.mark.slow)])
def test_everything_is_computed_on_the_device_of_the_input_whatever_the_default_device(items):
    g = torch.Generator().manual_seed(0)
    scores, relevant = torch.rand(2, items, generator=g), torch.rand(2, items, generator=g) < 0.1
    rows, query = embeddings(), torch.arange(items) // 9
    made = {name: kind() for name, kind in LOSSES.items()}  # a loss with a state has it on the default device

    def found() -> list[object]:
        report = evaluate(
            rows, LABELS, protocol=Protocol(weights=[1] * 6), metrics=[*METRICS, "FNMR@FMR=0.1"], intervals=9
        )
        values: list[object] = [report.values, report.intervals, topk(rows, rows, 2)[0].tolist()]
        values += [evaluate_graded(rows, rows, [{0: 1}] * 6, intervals=0).values]
        values += [
            metrics.nmi(LABELS.tolist(), [1, 1, 2, 2, 3, 3]),
            metrics.spearman(scores, scores[:, ::2].repeat(1, 2)),
        ]
        values += [read(scores.numpy(), relevant.numpy()) for read in FROM_SCORES.values()]
        for loss in made.values():
            leaf = scores.clone().requires_grad_()
            loss.from_scores(leaf, relevant).backward()
            values += [leaf.grad, loss(rows.tolist(), LABELS.tolist()), loss.from_lists(scores[0], relevant[0], query)]
        return values

    for each in made.values():
        each.eval()
    expected = found()
    with torch.device("meta"):
        torch.testing.assert_close(found(), expected, rtol=1e-4, atol=1e-6)


def test_ranks_of_arrays_and_lists_are_refused_with_the_way_to_a_tensor():
    scores, relevant = lists()
    for given in (scores.tolist(), scores.numpy()):
        for ranks in (lambda s: exact_ranks(s, relevant), lambda s: Soft(Heaviside(), Heaviside())(s, relevant)):
            with pytest.raises(TypeError, match=r"scores must be a tensor; got \w+. Pass torch.as_tensor\(scores\)"):
                ranks(given)


def test_strings_of_different_batches_are_refused_by_a_memory():
    memory = CrossBatchMemory(losses.SmoothAPLoss(), 20, need_ids=False)
    with pytest.raises(TypeError, match="number the strings"):
        memory(embeddings(), list("aabbcc"))


def test_missing_labels_are_an_error_that_names_the_ways_out():
    rows = embeddings()
    loss = losses.SmoothAPLoss()
    with pytest.raises(ValueError, match="relevant or indices_tuple"):
        loss(rows)
    with pytest.raises(ValueError, match="ref_emb and ref_labels go together"):
        loss(rows, LABELS, ref_emb=rows)
    for options in ({"ref_labels": LABELS}, {"ref_ids": LABELS}):
        with pytest.raises(ValueError, match="pass ref_emb"):
            loss(rows, LABELS, **options)


def test_indices_tuple_and_relevance_together_are_an_error():
    one = torch.tensor([0])
    with pytest.raises(ValueError, match="without relevant"):
        losses.SmoothAPLoss()(embeddings(), indices_tuple=(one,) * 3, relevant=torch.ones(6, 6, dtype=torch.bool))


def test_indices_tuple_beyond_the_batch_is_an_error():
    one = torch.tensor
    with pytest.raises((IndexError, ValueError)):
        losses.SmoothAPLoss()(embeddings(), LABELS, (one([0]), one([9]), one([0]), one([1])))


def test_negative_index_in_an_indices_tuple_is_an_error():
    one = torch.tensor
    with pytest.raises((IndexError, ValueError)):
        losses.SmoothAPLoss()(embeddings(), LABELS, (one([0]), one([-1]), one([0]), one([1])))


@pytest.mark.parametrize(
    ("ids", "word"),
    [
        (torch.arange(5), r"integers \[6\]"),
        (torch.arange(6.0), r"integers \[6\]"),
        (LABELS.bool(), r"integers \[6\].*bool"),
        (LABELS.cfloat(), r"integers \[6\].*complex64"),
    ],
    ids=["short", "float", "bool", "complex"],
)
def test_ids_out_of_step_or_not_integer_are_an_error(ids, word):
    loss = losses.SmoothAPLoss()
    for called in (loss, CrossBatchMemory(loss, 9)):
        with pytest.raises(ValueError, match=word):
            called(embeddings(), LABELS, ids=ids)


def test_relevance_is_used_instead_of_labels():
    loss, relevant = losses.SmoothAPLoss(), torch.eye(6).roll(1, 0).bool()
    both, alone = loss(embeddings(), LABELS, relevant=relevant), loss(embeddings(), relevant=relevant)
    assert both == alone != loss(embeddings(), LABELS)


@pytest.mark.parametrize("given", ["ids", "ref_ids"])
def test_ids_of_one_side_only_are_an_error(given):
    with pytest.raises(ValueError, match="without ids|without ref_ids"):
        losses.SmoothAPLoss()(embeddings(), LABELS, ref_emb=embeddings(), ref_labels=LABELS, **{given: torch.arange(6)})


@pytest.mark.parametrize("name", LOSSES)
def test_batch_of_copies_of_one_sample_has_nothing_to_compare(name):
    rows = embeddings().requires_grad_()
    loss = LOSSES[name]()
    value = loss(rows, torch.zeros(6, dtype=torch.long), ids=torch.zeros(6, dtype=torch.long))
    value.backward()
    assert value == 0 and (rows.grad == 0).all()


# ------------------------------------------------------------------------------- batches with little or nothing in it

EMPTY = list(LOSSES)


@pytest.mark.parametrize("name", EMPTY)
def test_empty_batch_costs_nothing_and_keeps_its_graph(name):
    rows = torch.zeros(0, 4, requires_grad=True)
    loss = LOSSES[name]()
    value = loss(rows, LABELS[:0])
    value.backward()
    assert value == 0 and rows.grad.shape == (0, 4) and loss.stats["counted"].shape == (0,)
    assert LOSSES[name](reduction="none")(rows, LABELS[:0]).shape == (0,)


@pytest.mark.parametrize("name", EMPTY)
def test_queries_without_any_reference_cost_nothing(name):
    rows = embeddings().requires_grad_()
    value = LOSSES[name]()(rows, LABELS, ref_emb=torch.zeros(0, 4), ref_labels=LABELS[:0])
    value.backward()
    assert value == 0 and (rows.grad == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_no_query_against_references_costs_nothing(name):
    rows = torch.zeros(0, 4, requires_grad=True)
    value = LOSSES[name]()(rows, LABELS[:0], ref_emb=embeddings(), ref_labels=LABELS)
    value.backward()
    assert value == 0


@pytest.mark.parametrize("name", LOSSES)
def test_one_row_has_nobody_to_be_compared_with(name):
    row = embeddings(1).requires_grad_()
    value = LOSSES[name]()(row, LABELS[:1])
    value.backward()
    assert value == 0 and (row.grad == 0).all()


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in CALIBRATED])
def test_batch_without_two_of_a_class_costs_nothing(name):
    rows = embeddings().requires_grad_()
    loss = LOSSES[name]()
    value = loss(rows, torch.arange(6))
    value.backward()
    assert value == 0 and (rows.grad == 0).all() and not loss.stats["counted"].any()


@pytest.mark.parametrize("name", LOSSES)
def test_batch_of_one_class_has_a_finite_gradient(name):
    rows = embeddings().requires_grad_()
    value = LOSSES[name]()(rows, torch.zeros(6, dtype=torch.long))
    value.backward()
    assert value.isfinite() and rows.grad.isfinite().all()
    # nothing irrelevant stands above; AUC lacks the irrelevant, calibration wants the relevant beyond alpha, FastAP's
    # and SoftBinAP's bins and Recall@k's and NDCG's sigmoids compare relevant items too
    if name in ("supap", "smooth_ap", "pnp", "rambo_recall", "rambo_ap", "h_ap", "auc"):
        assert value.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_zero_vectors_have_finite_gradients_and_are_counted(name):
    for zeros in ([2], range(6)):
        rows = embeddings()
        rows[list(zeros)] = 0
        rows.requires_grad_()
        loss = LOSSES[name]()
        value = loss(rows, LABELS)
        value.backward()
        assert value.isfinite() and rows.grad.isfinite().all()
        assert loss.stats["zero_rows"] == len(zeros)


@pytest.mark.parametrize(
    "scale",
    [
        1e-15,
        1e15,
        *(s for s in (1e-25, 1e20)),
    ],
)
def test_length_of_finite_embeddings_does_not_matter(scale):
    loss = losses.SmoothAPLoss(tau=0.1)
    torch.testing.assert_close(loss(embeddings() * scale, LABELS), loss(embeddings(), LABELS), rtol=1e-4, atol=1e-5)


def test_k_beyond_the_batch_is_no_error():
    value = losses.RecallAtKLoss(k=(1, 1000))(embeddings(), LABELS)
    assert value.isfinite() and 0 < value < 1


def test_query_ranked_option_says_nothing_about_references():
    refs, ref_labels = embeddings(20, seed=1), torch.arange(20) % 3
    both = [
        losses.RecallAtKLoss(k=(1, 16), rank_query=flag)(
            embeddings(2), LABELS[1:3], ref_emb=refs, ref_labels=ref_labels
        )
        for flag in (False, True)
    ]
    torch.testing.assert_close(*both)


# --------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: losses.SupAPLoss(reduction="sum"), "reduction"),
        (lambda: losses.SmoothAPLoss(tau=0.0), "tau"),
        (lambda: losses.SupAPLoss(rho=-1.0), "rho"),
        (lambda: losses.SupAPLoss(tie="lower"), "tie"),
        (lambda: losses.HAPLoss(delta=-0.1), "delta"),
        (lambda: losses.ROADMAPLoss(weight=1.5), "weight"),
        (lambda: losses.ROADMAPLoss(aggregation="pooled"), "aggregation"),
        (lambda: losses.CalibrationLoss(aggregation="sum"), "aggregation"),
        (lambda: losses.PNPLoss("Dz"), "Dq, Ds, Ib, Iu, O"),
        (lambda: losses.PNPLoss(alpha=0.0), "alpha"),
        (lambda: losses.PNPLoss("Ib", b=0.0), "b bounds"),
        (lambda: losses.RaMBORecallLoss(lambda_=0.0), "lambda_"),
        (lambda: losses.RaMBOAPLoss(margin=-0.1), "margin"),
        (lambda: losses.RaMBORecallLoss(weight="lin"), "weight"),
        (lambda: losses.RaMBORecallLoss(weight=(1.0, -1.0)), "weight is a list of w_1 .. w_K"),
        (lambda: losses.RaMBORecallLoss(weight=()), "weights"),
        (lambda: losses.RaMBORecallLoss(weight=lambda r: r + 1), r"W\(0\)"),
        (lambda: losses.RaMBORecallLoss(aggregation="mean"), "aggregation"),
        (lambda: losses.RaMBOAPLoss(aggregation="mean"), "aggregation"),
        (lambda: losses.FastAPLoss(bins=0), "bins"),
        (lambda: losses.SoftBinAPLoss(bins=1), "bins"),
        (lambda: losses.SoftBinAPLoss(low=1.0, high=0.0), "high"),
        (lambda: losses.AUCLoss(step=0.3), "divide"),
        (lambda: losses.AUCLoss(step=0.0), "step"),
        (lambda: losses.AUCLoss(t_min=1.0, t_max=-1.0), "t_max"),
        (lambda: losses.AUCLoss(slope=-1.0), "slope"),
        (lambda: losses.AUCLoss(pad_steps=-1), "pad_steps"),
        (lambda: losses.RecallAtKLoss(k=()), "k "),
        (lambda: losses.RecallAtKLoss(k=(0, 1)), "k "),
        (lambda: losses.RecallAtKLoss(k=(1, 2), tau2=(1.0,)), "tau2"),
        (lambda: losses.RecallAtKLoss(tau2=0.0), "tau2"),
        (lambda: losses.RecallAtKLoss(tau1=-1.0), "tau"),
        (lambda: losses.NDCGLoss(gain="log"), "gain"),
        (lambda: RankLoss(exact_ranks), "metric"),
        (lambda: RankLoss(exact_ranks, metric=metrics.ndcg, penalty=torch.log1p), "metric"),
    ],
)
def test_impossible_option_is_an_error_that_names_it(make, word):
    with pytest.raises(ValueError, match=word):
        make()


# What a number may not be, and for whom it may: None and "auto" have a meaning, a sequence is one value for each k.
NO_NUMBERS = ["abc", "0.1", math.nan, math.inf, True, [0.1], None, 1j, Tensor]
ALLOWED = {
    "delta": ["auto"],
    "offset": [None],
    "slope": [None],
    "positives": [None],
    "tau2": [[0.1]],
}
NUMBERS = {
    f"{name}.{option}": (cls, option)
    for name, cls in LOSSES.items()
    for option, default in ((p.name, p.default) for p in inspect.signature(cls).parameters.values())
    if option in ALLOWED or (isinstance(default, (int, float)) and not isinstance(default, bool))
}


@pytest.mark.parametrize("option", NUMBERS)
def test_option_that_is_no_number_is_an_error_of_one_line_that_names_it(option):
    cls, name = NUMBERS[option]
    for wrong in [value for value in NO_NUMBERS if value not in ALLOWED.get(name, [])]:
        with pytest.raises(ValueError, match=rf"^{name}\b.* must be a(n integer| number).*; got ") as error:
            cls(**{name: wrong})
            pytest.fail(f"{wrong!r} was taken")
        assert repr(wrong) in str(error.value) or wrong == [0.1]
        assert "\n" not in str(error.value)


FLAGS = {
    f"{name}.{option}": (cls, option)
    for name, cls in LOSSES.items()
    for option in ("include_self", "normalize", "check_finite", "normalized_ranks", "rank_query")
    if option in cls._options()
}


@pytest.mark.parametrize("option", FLAGS)
def test_yes_or_no_that_is_neither_is_an_error(option):
    cls, name = FLAGS[option]
    for wrong in ("no", 0, 1.0, []):
        with pytest.raises(ValueError, match=f"^{name} must be True or False; got "):
            cls(**{name: wrong})
            pytest.fail(f"{wrong!r} was taken")


@pytest.mark.parametrize("wrong", ["abc", None, 3, []], ids=str)
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (losses.SupAPLoss, "reduction"),
        (losses.SupAPLoss, "tie"),
        (losses.CalibrationLoss, "aggregation"),
        (losses.RaMBOAPLoss, "aggregation"),
        (losses.RaMBORecallLoss, "weight"),
        (losses.NDCGLoss, "gain"),
        (losses.PNPLoss, "variant"),
        (losses.SpearmanLoss, "ranks"),
        (losses.RecallAtKLoss, "k"),
    ],
    ids=str,
)
def test_word_that_is_not_known_is_an_error(cls, name, wrong):
    with pytest.raises(ValueError, match=name):
        cls(**{name: wrong})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.ROADMAPLoss(taus=1), r"ROADMAPLoss has no option 'taus'; did you mean 'tau'\? It has tau, rho"),
        (lambda: losses.SmoothAPLoss(normalise=False), r"SmoothAPLoss has no option 'normalise'; did you mean 'norma"),
        (lambda: losses.RecallAtKLoss(xyz=1), r"RecallAtKLoss has no option 'xyz'\. It has k, tau1, tau2"),
        (
            lambda: RankLoss(exact_ranks, metric=metrics.ndcg, tau=1),
            r"RankLoss has no option 'tau'\. It has ranks, met",
        ),
    ],
)
def test_option_that_does_not_exist_is_answered_with_the_closest_and_all(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_numbers_of_numpy_are_numbers():
    loss = losses.SupAPLoss(tau=np.float32(0.5), delta=np.int64(1))
    assert loss.tau == 0.5 and losses.RecallAtKLoss(k=np.arange(1, 3)).k == (1, 2)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda bad: Soft(bad, Sigmoid()), "pos"),
        (lambda bad: Soft(Sigmoid(), bad), "neg"),
        (lambda bad: Soft(Sigmoid(), Sigmoid(), method=bad), "method"),
        (lambda bad: Soft(Sigmoid(), Sigmoid(), chunk=bad), "chunk"),
        (lambda bad: Soft(Sigmoid(), Sigmoid(), pull=bad), "pull"),
        (lambda bad: RankLoss(bad, metric=metrics.ndcg), "ranks"),
        (lambda bad: RankLoss(exact_ranks, metric=bad), "metric"),
        (lambda bad: RankLoss(exact_ranks, penalty=bad), "penalty"),
        (lambda bad: Exponential(cap=bad), "cap"),
        (lambda bad: SupStep(start=bad), "start"),
        (lambda bad: Blackbox(prefilter=bad), "prefilter"),
        (lambda bad: CrossBatchMemory(losses.SmoothAPLoss(), bad), "size"),
        (lambda bad: CrossBatchMemory(losses.SmoothAPLoss(), 5, weight=bad), "weight"),
        (lambda bad: CrossBatchMemory(losses.SmoothAPLoss(), 5, warmup=bad), "warmup"),
        (lambda bad: CrossBatchMemory(losses.SmoothAPLoss(), 5, dtype=bad), "dtype"),
    ],
)
def test_parts_of_a_loss_refuse_what_they_are_not(make, name):
    with pytest.raises(ValueError, match=rf"^{name}\b.* must be .*; got 'abc'|^{name} must be a function; got 'abc'"):
        make("abc")


@pytest.mark.parametrize(
    "make", [lambda: losses.RecallAtKLoss(k=(1.5,)), lambda: losses.FastAPLoss(bins=10.5)], ids=["k", "bins"]
)
def test_fraction_for_a_whole_number_is_an_error(make):
    with pytest.raises((TypeError, ValueError)):
        make()


def test_thresholds_that_contradict_each_other_are_an_error():
    with pytest.raises(ValueError, match="beta"):
        losses.CalibrationLoss(alpha=0.1, beta=0.6)


def test_fourth_positional_argument_cannot_be_mistaken_for_an_option_of_all_losses():
    with pytest.raises(TypeError):
        losses.SmoothAPLoss(0.01, "none")


def test_chunk_and_steps_of_a_soft_rank_loss_are_its_own(problem):
    scores, relevant, valid = problem()
    step = Sigmoid(0.1)
    loss = RankLoss(Soft(step, step, chunk=3), metric=metrics.average_precision)
    expected = RankLoss(Soft(step, step), metric=metrics.average_precision)
    torch.testing.assert_close(loss.from_scores(scores, relevant, valid), expected.from_scores(scores, relevant, valid))
    with pytest.raises(TypeError):
        soft_ranks(scores, relevant, valid)


# --------------------------------------------------------------------------------------------------------- metrics

FROM_SCORES = {
    **{
        name: getattr(metrics, name)
        for name in (
            "average_precision",
            "map_at_r",
            "recall_at_k",
            "item_recall_at_k",
            "precision_at_k",
            "refined_recall_at_k",
            "r_precision",
            "reciprocal_rank",
            "ndcg",
            "hierarchical_ap",
            "roc_auc",
        )
    }
}


@pytest.mark.parametrize("name", FROM_SCORES)
def test_metric_of_no_query_and_of_no_item_is_empty_and_zero(name):
    read = FROM_SCORES[name]
    assert read(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool)).shape == (0,)
    assert read(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).tolist() == [0, 0]
    assert read(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool)).tolist() == [0, 0]


@pytest.mark.parametrize("name", FROM_SCORES)
def test_metric_of_lists_that_do_not_fit_is_an_error(name):
    read, none = FROM_SCORES[name], torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="shape of scores"):
        read(torch.zeros(2, 3), none[:, :2])
    with pytest.raises(ValueError, match="scores must be a float"):
        read(torch.zeros(2, 3, dtype=torch.long), none)
    with pytest.raises(ValueError, match="scores must be a float"):
        read(torch.zeros(3), none[0])
    with pytest.raises(ValueError, match="valid must be bool"):
        read(torch.zeros(2, 3), none, valid=torch.ones(2, 3))


@pytest.mark.parametrize("read", [metrics.mean_average_precision, metrics.mean_reciprocal_rank, metrics.auc_hardest])
def test_mean_over_no_query_is_an_error_and_not_nan(read):
    with pytest.raises(ValueError, match="undefined"):
        read(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="undefined"):
        read(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool))


def test_scores_without_relevance_and_ranks_with_it_are_type_errors():
    scores, relevant = lists()
    with pytest.raises(TypeError, match="need relevant"):
        metrics.average_precision(scores)
    with pytest.raises(TypeError, match="ranks already contain"):
        metrics.average_precision(exact_ranks(scores, relevant), relevant)


@pytest.mark.parametrize("k", [0, -1, 1.5, "1"])
@pytest.mark.parametrize(
    "read", [metrics.recall_at_k, metrics.item_recall_at_k, metrics.precision_at_k, metrics.refined_recall_at_k]
)
def test_k_that_counts_nothing_is_an_error(read, k):
    with pytest.raises(ValueError, match="k is a number of items"):
        read(*lists(), k)


def test_k_may_be_an_integer_of_numpy():
    assert torch.equal(metrics.recall_at_k(*lists(), np.int64(2)), metrics.recall_at_k(*lists(), 2))


def test_options_of_metrics_that_do_not_exist_are_an_error():
    with pytest.raises(ValueError, match="ties"):
        metrics.average_precision(*lists(), ties="mean")
    with pytest.raises(ValueError, match="gain"):
        metrics.ndcg(*lists(), gain="log")
    with pytest.raises(ValueError, match="k is a number of ranks"):
        metrics.ndcg(*lists(), k=0)
    with pytest.raises(TypeError, match="tied"):
        metrics.average_precision(exact_ranks(*lists()), ties="average")


def test_ties_asked_of_ranks_that_have_forgotten_them_are_an_error():
    with pytest.raises(TypeError):
        metrics.average_precision(exact_ranks(*lists()), ties="optimistic")


def test_integer_relevance_means_the_same_to_every_metric():
    scores, relevant = lists()
    assert torch.equal(metrics.auc_hardest(scores, relevant.long()), metrics.auc_hardest(scores, relevant))


def test_partitions_and_vectors_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="equally long"):
        metrics.nmi(torch.arange(3), torch.arange(4))
    with pytest.raises(ValueError, match="equally long"):
        metrics.nmi(LABELS[:0], LABELS[:0])
    with pytest.raises(ValueError, match="same shape"):
        metrics.spearman(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="no class has two"):
        metrics.dists_intra(embeddings(), torch.arange(6))
    with pytest.raises(ValueError, match="one class only"):
        metrics.dists_inter(embeddings(), torch.zeros(6, dtype=torch.long))
    with pytest.raises(ValueError, match="labels"):
        metrics.dists_intra(embeddings(), LABELS[:4])
    with pytest.raises(ValueError, match="batch must hold"):
        metrics.decomposability_gap(*lists(), LABELS[:4])


def test_spearman_of_bytes_is_that_of_their_numbers():
    values = torch.arange(3, dtype=torch.uint8)
    assert metrics.spearman(values, torch.arange(3)).item() == 1


def test_spearman_of_nan_is_nan_or_an_error():
    try:
        value = metrics.spearman(torch.tensor([1.0, math.nan, 2.0]), torch.arange(3.0))
    except ValueError:
        return
    assert value.isnan()


def test_zero_rows_stand_at_cosine_distance_one():
    assert metrics.dists_intra(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1])) == pytest.approx(1)


@pytest.mark.parametrize(
    "options",
    [
        {"positives": [], "negatives": []},
        {"positives": [1, 2], "negatives": [1]},
        {"positives": [0, 0], "negatives": [1, 1]},
        {"positives": [1, 2], "negatives": [1, 1], "above_alpha": [1, 1]},
        *(
            options
            for options in (
                {"positives": [1, 2], "negatives": [1, 1], "order": "best"},
                {"positives": [-1, 2], "negatives": [1, 1]},
                {"positives": [1, 2], "negatives": [1, 1], "above_alpha": [2, 2], "above_beta": [0, 0]},
            )
        ),
    ],
    ids=str,
)
def test_bound_of_impossible_batches_is_an_error(options):
    with pytest.raises(ValueError):
        metrics.decomposability_bound(**options)


def columns_with_a_missing_label():
    import pandas as pd
    import pyarrow as pa

    whole, words = [0, 0, None, 1], ["a", "a", None, "b"]
    return {
        "Int64": pd.Series(whole, dtype="Int64"),
        "of pyarrow in pandas": pd.Series(whole, dtype="int64[pyarrow]"),
        "float64": pd.Series(whole, dtype="float64"),
        "string": pd.Series(words, dtype="string"),
        "boolean": pd.Series([True, True, None, False], dtype="boolean"),
        "category": pd.Series(words, dtype="category"),
        "of pyarrow": pa.array(whole),
        "chunks of pyarrow": pa.chunked_array([words[:1], words[1:]]),
        "objects": np.array(whole, dtype=object),
        "list": whole,
        "tensor": torch.tensor([0, 0, torch.nan, 1]),
    }


@pytest.mark.parametrize("kind", columns_with_a_missing_label())
def test_rows_without_a_label_are_named(kind):
    labels, embeddings = columns_with_a_missing_label()[kind], torch.eye(4)
    message = "labels has no value in 1 of 4 rows: 2. Leave"
    with pytest.raises(ValueError, match=message):
        evaluate(embeddings, labels)
    with pytest.raises(ValueError, match=message):
        losses.SmoothAPLoss()(embeddings, labels)


@pytest.mark.parametrize("kind", ["int8", "uint8", "float8_e4m3fn", "float8_e5m2"])
def test_embeddings_of_one_byte_are_evaluated_in_float32(kind):
    generator = torch.Generator().manual_seed(0)
    small = (20 * torch.rand(12, 4, generator=generator)).to(getattr(torch, kind))
    labels = torch.arange(12) // 3
    assert evaluate(small, labels, intervals=0).values == evaluate(small.float(), labels, intervals=0).values
    with pytest.raises(ValueError, match=f"got torch.{kind} .*Pass embeddings.float"):
        losses.SmoothAPLoss()(small, labels)
    with pytest.raises(TypeError, match="float8; got .V1. Convert"):
        evaluate(small.view(torch.uint8).numpy().view("V1"), labels)
