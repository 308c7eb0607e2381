"""Labels and ids -> what is relevant, and what exists."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import torch

from rankgrad import metrics, relevance
from rankgrad.losses import SmoothAPLoss


def randint(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def test_class_labels_match_where_they_are_equal_and_never_with_themselves():
    labels = randint(4, 9)
    relevant, valid = relevance.from_labels(labels)
    for q in range(9):
        for j in range(9):
            assert relevant[q, j] == (labels[q] == labels[j]) and valid[q, j] == (q != j)


def test_references_are_all_valid_unless_ids_say_otherwise():
    labels, refs = randint(3, 4), randint(3, 6, seed=1)
    relevant, valid = relevance.from_labels(labels, refs)
    assert valid is None and torch.equal(relevant, labels.unsqueeze(1) == refs)
    ids, ref_ids = torch.tensor([10, 11, 12, 13]), torch.tensor([13, 99, 10, 10, 98, 12])
    _, valid = relevance.from_labels(labels, refs, ids=ids, ref_ids=ref_ids)
    assert torch.equal(valid, torch.tensor([[i != r for r in ref_ids.tolist()] for i in ids.tolist()]))


def test_copies_in_a_batch_go_with_the_diagonal_and_include_self_brings_back_the_diagonal_alone():
    labels, ids = torch.zeros(3, dtype=torch.long), torch.tensor([7, 8, 7])
    expected = torch.tensor([[False, True, False], [True, False, True], [False, True, False]])
    assert torch.equal(relevance.from_labels(labels, ids=ids)[1], expected)
    kept = relevance.from_labels(labels, ids=ids, include_self=True)[1]
    assert torch.equal(kept, expected | torch.eye(3, dtype=torch.bool))
    assert relevance.from_labels(labels, include_self=True)[1] is None


def test_multi_hot_labels_match_where_a_class_is_shared_and_nothing_matches_no_class():
    tags, refs = randint(2, 5, 4).bool(), randint(2, 7, 4, seed=1).bool()
    tags[2] = False
    relevant, _ = relevance.from_labels(tags, refs)
    for q in range(5):
        for j in range(7):
            assert relevant[q, j] == bool((tags[q] & refs[j]).any())
    assert relevant.dtype == torch.bool and not relevant[2].any()


def test_multi_hot_labels_of_many_classes_are_counted_exactly():
    tags = torch.zeros(2, 5000, dtype=torch.bool)
    tags[0, 4999] = tags[1, 4999] = True
    assert relevance.from_labels(tags)[0].all()


@pytest.mark.parametrize(
    "labels", [torch.rand(4), torch.rand(4, 2), torch.zeros(4, 2, 2, dtype=torch.long)], ids=["row", "rows", "block"]
)
def test_floats_and_blocks_are_no_labels(labels):
    with pytest.raises(ValueError, match="labels must be long"):
        relevance.from_labels(labels)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, np.int64])
def test_one_hot_integers_are_not_taken_for_a_hierarchy(kind):
    numbers = torch.tensor([2, 0, 1, 2])
    hot = torch.nn.functional.one_hot(numbers, 4)
    hot = hot.numpy() if kind is np.int64 else hot.to(kind)
    with pytest.raises(ValueError, match=r"one-hot.*argmax\(1\)"):
        SmoothAPLoss()(torch.eye(4), hot)
    with pytest.raises(TypeError, match=r"one-hot labels take labels.argmax\(1\)"):
        SmoothAPLoss()(torch.eye(4), torch.as_tensor(hot).float())


@pytest.mark.parametrize(
    "levels",
    [
        [[0, 0, 0], [0, 0, 1], [0, 1, 2]],  # numbered over the whole set
        [[0, 0, 1], [0, 0, 1]],  # a batch of one class
        [[0, 1], [1, 0], [0, 1]],  # two levels
        [[1, 0, 0], [0, 0, 1], [0, 0, 1]],  # two classes
    ],
)
def test_levels_that_look_like_one_hot_are_still_levels(levels):
    relevance.check_labels(torch.tensor(levels))


def test_bytes_with_columns_are_not_taken_for_a_hierarchy():
    tags = randint(2, 5, 3).to(torch.uint8)
    for given in ((tags, None), (tags.long(), tags)):
        with pytest.raises(ValueError, match="uint8 .*bool for multi-hot"):
            relevance.from_labels(*given)
    relevance.from_labels(tags[:, 0])


def hierarchy(rows: int, seed: int) -> torch.Tensor:
    """Three levels; equal numbers below different parents are different classes."""
    return torch.stack(
        [randint(2, rows, seed=seed), randint(3, rows, seed=seed + 1), randint(2, rows, seed=seed + 2)], 1
    )


@pytest.mark.parametrize("seed", range(3))
def test_hierarchical_labels_give_the_gains_of_happier(seed):
    labels, refs = hierarchy(12, seed), hierarchy(15, seed + 10)
    gains, valid = relevance.from_labels(labels)
    eye = torch.eye(12, dtype=torch.bool)
    assert torch.equal(valid, ~eye)
    expected = reference.happier_gains(labels, labels, ~eye)
    torch.testing.assert_close(gains.double() * ~eye, expected, rtol=1e-6, atol=1e-6)
    gains, valid = relevance.from_labels(labels, refs)
    assert valid is None
    torch.testing.assert_close(gains.double(), reference.happier_gains(labels, refs, None), rtol=1e-6, atol=1e-6)


def test_gains_of_each_level_add_up_to_the_share_of_the_level():
    labels = hierarchy(20, 5)
    gains, valid = relevance.from_labels(labels)
    shared = relevance.shared_levels(labels, labels)
    for q in range(20):
        for level in (1, 2, 3):
            mine = (shared[q] == level) & valid[q]
            if mine.any():
                assert gains[q][mine].sum().item() == pytest.approx(level / 3)


def test_items_with_the_query_s_id_do_not_enter_the_denominator_of_gains():
    labels, ids = torch.tensor([[0, 0]] * 4), torch.tensor([1, 1, 2, 3])
    gains, valid = relevance.from_labels(labels, ids=ids)
    expected = torch.tensor([0.0, 0.0, 0.5, 0.5])
    assert torch.equal(gains[0] * valid[0], expected)


@pytest.mark.filterwarnings("error")
def test_integers_of_another_byte_order_of_objects_and_of_read_only_memory_are_labels():
    """A big-endian file, a column of a data frame, and a column of pandas 3, whose memory is read-only."""
    read_only = np.array([3, 1])
    read_only.setflags(write=False)
    for given in (np.array([3, 1], dtype=">i4"), np.array([3, 1], dtype=object), read_only):
        assert relevance.as_labels(given)[0].tolist() == [3, 1]
    with pytest.raises(ValueError, match="got larger ones"):
        relevance.as_labels(np.array([2**70, 1], dtype=object))
    for given in ([True, False], [1.0, 2.0]):
        with pytest.raises(TypeError, match="got object"):
            relevance.as_labels(np.array(given, dtype=object))


def test_levels_are_shared_from_the_coarse_end_only():
    labels = torch.tensor([[0, 5, 7], [1, 5, 7], [0, 6, 7], [0, 5, 8]])
    assert relevance.shared_levels(labels[:1], labels).tolist() == [[3, 0, 1, 2]]


def test_exponent_of_gains_makes_finer_levels_matter_more():
    shared = torch.tensor([[0, 1, 2, 2]])
    assert relevance.hierarchical_gains(shared, 2, alpha=2.0).tolist() == [[0.0, 0.25, 0.5, 0.5]]


def test_exponential_gains_of_small_grades_keep_their_digits_in_float32():
    grades = torch.tensor([1e-4, 0.5, 3.0])
    exact = torch.expm1(grades.double() * math.log(2))
    torch.testing.assert_close(relevance.gains_of(grades, "exp2").double(), exact, rtol=1e-6, atol=0)


def test_exponential_gains_of_tiny_grades_do_not_vanish_and_those_of_whole_grades_are_exact():
    """2^g rounds to 1 below 1e-16. Then NDCG of a list of such grades would be 0, whatever the order is."""
    tiny = torch.tensor([[1e-20, 3e-20, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(relevance.gains_of(tiny, "exp2"), tiny * math.log(2), rtol=1e-15, atol=0)
    scores = torch.tensor([[3.0, 2.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(metrics.ndcg(scores, tiny, gain="exp2"), metrics.ndcg(scores, tiny), rtol=1e-15, atol=0)
    whole = torch.arange(53)
    assert relevance.gains_of(whole.double(), "exp2").tolist() == [2**grade - 1 for grade in whole.tolist()]


def test_hierarchical_labels_without_gains_match_on_all_levels():
    labels = hierarchy(10, 1)
    relevant, _ = relevance.from_labels(labels, hierarchy="finest")
    assert torch.equal(relevant, (labels.unsqueeze(1) == labels).all(2)) and relevant.dtype == torch.bool


def test_one_level_of_hierarchy_matches_like_class_labels():
    labels = randint(3, 8)
    gains, _ = relevance.from_labels(labels.unsqueeze(1))
    relevant, valid = relevance.from_labels(labels)
    assert torch.equal((gains > 0) & valid, relevant & valid)


def test_pairs_and_triplets_name_what_exists():
    index = torch.tensor
    relevant, valid = relevance.from_indices_tuple((index([0, 0]), index([1, 2]), index([0, 2]), index([3, 0])), 3, 4)
    assert relevant.nonzero().tolist() == [[0, 1], [0, 2]]
    assert valid.nonzero().tolist() == [[0, 1], [0, 2], [0, 3], [2, 0]]
    triplets = relevance.from_indices_tuple((index([0, 0]), index([1, 2]), index([3, 3])), 3, 4)
    assert triplets[0].nonzero().tolist() == [[0, 1], [0, 2]]
    assert triplets[1].nonzero().tolist() == [[0, 1], [0, 2], [0, 3]]


@pytest.mark.parametrize(
    "labels",
    [
        torch.zeros(3),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, 2),
        torch.zeros(3, 2, 2, dtype=torch.long),
        torch.tensor(3),
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}",
)
def test_labels_of_no_kind_are_an_error_that_names_the_kinds(labels):
    with pytest.raises(ValueError, match=r"long \[row\].*multi-hot.*hierarchy"):
        relevance.from_labels(labels)


def test_labels_of_two_kinds_are_an_error():
    with pytest.raises(ValueError, match="the same kind"):
        relevance.from_labels(torch.zeros(3, dtype=torch.long), torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="the same kind"):
        relevance.from_labels(torch.zeros(3, 2, dtype=torch.bool), torch.zeros(4, 3, dtype=torch.bool))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"ids": torch.arange(4)}, "ids"),
        ({"ids": torch.arange(3.0)}, "integers"),
        ({"ref_ids": torch.arange(3)}, "without references"),
        ({"ref_labels": torch.zeros(2, dtype=torch.long), "ids": torch.arange(3)}, "without ref_ids"),
        ({"ref_labels": torch.zeros(2, dtype=torch.long), "ref_ids": torch.arange(2)}, "without ids"),
        (
            {"ref_labels": torch.zeros(2, dtype=torch.long), "ids": torch.arange(3), "ref_ids": torch.arange(3)},
            "ref_ids",
        ),
    ],
)
def test_ids_that_fit_nothing_are_an_error(options, word):
    with pytest.raises(ValueError, match=word):
        relevance.from_labels(torch.zeros(3, dtype=torch.long), **options)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ((torch.ones(6, dtype=torch.bool),) * 4, "integers"),
        ((torch.tensor([0]), torch.tensor([1, 2, 3]), torch.tensor([0]), torch.tensor([1])), "equally long; got 1, 3"),
        ((torch.tensor([0.0]),) * 4, "integers"),
        ((torch.tensor([[0]]),) * 3, "integers"),
        (5, "pairs"),
    ],
)
def test_pairs_that_fit_nothing_are_an_error(given, word):
    with pytest.raises(ValueError, match=word):
        relevance.from_indices_tuple(given, 4, 4)


def test_pairs_may_be_bytes_or_empty_lists():
    small = tuple(torch.tensor([i], dtype=torch.uint8) for i in (0, 1, 0, 2))
    assert relevance.from_indices_tuple(small, 2, 3)[0].nonzero().tolist() == [[0, 1]]
    assert not relevance.from_indices_tuple(([], [], [], []), 2, 3)[1].any()


def test_indices_tuple_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="pairs .* or triplets"):
        relevance.from_indices_tuple((torch.tensor([0]),) * 2, 2, 2)


@pytest.mark.parametrize("words", [np.array(["b", "a"], dtype=object), ["b", "a"], ("b", "a")])
def test_words_are_found_in_arrays_of_objects_too(words):
    assert relevance.words_of(words).tolist() == ["a", "b"]
    assert relevance.words_of(np.array([1, 2], dtype=object)) is None
