from __future__ import annotations

import itertools
import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from rankgrad.batches.sampler_settings import as_settings, check_settings
from rankgrad.batches.samplers import (
    EpochList,
    HierarchicalBatchSampler,
    MPerClassBatchSampler,
    ShuffledBatches,
    SmallClassWarning,
    class_batches,
)
from rankgrad.losses import LOSSES, RANK_LOSSES


def uneven_labels(seed: int = 0, classes: int = 13) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    sizes = torch.randint(4, 40, (classes,), generator=g)
    labels = torch.repeat_interleave(torch.arange(classes) * 7 - 20, sizes)  # any values, negative ones too
    return labels[torch.randperm(len(labels), generator=g)]


@pytest.mark.parametrize(("per_batch", "per_class"), [(2, 2), (5, 4), (13, 4), (12, 3), (7, 1)])
def test_every_batch_holds_p_distinct_classes_with_k_distinct_images_each(per_batch, per_class):
    labels = uneven_labels()
    sampler = MPerClassBatchSampler(labels, per_batch, per_class, batches_per_epoch=60)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 60
    for batch in batches:
        assert all(type(row) is int for row in batch)
        assert len(set(batch)) == len(batch) == per_batch * per_class
        _, counts = np.unique(labels[batch].numpy(), return_counts=True)
        assert counts.tolist() == [per_class] * per_batch


def test_visits_to_any_two_classes_differ_by_at_most_one_at_every_moment():
    labels = uneven_labels()
    sampler = MPerClassBatchSampler(labels, 5, 4, batches_per_epoch=40)
    rows = sampler.batches(epoch=3)
    number = np.unique(labels.numpy(), return_inverse=True)[1]
    seen = np.zeros(13, dtype=int)
    for batch in rows:
        for first in batch[::4]:
            seen[number[first]] += 1
            assert seen.max() - seen.min() <= 1
    assert seen.sum() == 200


def test_no_image_of_a_class_comes_twice_before_all_of_it_came_once():
    labels = uneven_labels()
    rows = np.array(MPerClassBatchSampler(labels, 6, 3, batches_per_epoch=120).batches(epoch=0)).reshape(-1)
    for label in labels.unique().tolist():
        mine = [row for row in rows.tolist() if labels[row] == label]
        counts = np.bincount(mine, minlength=len(labels))[labels.numpy() == label]
        assert counts.max() - counts.min() <= 1 and counts.min() >= 1


def test_a_batch_that_lies_across_a_shuffle_still_has_distinct_images_when_a_class_has_barely_enough():
    labels = torch.arange(3).repeat_interleave(torch.tensor([3, 4, 5]))
    for batch in MPerClassBatchSampler(labels, 2, 3, batches_per_epoch=200):
        assert len(set(batch)) == 6


def test_the_default_epoch_is_one_pass_in_number_and_at_least_one_batch():
    labels = torch.arange(10).repeat_interleave(20)
    assert len(MPerClassBatchSampler(labels, 4, 4)) == 200 // 16
    assert len(MPerClassBatchSampler(labels[:80], 4, 20)) == 1
    assert len(MPerClassBatchSampler(torch.arange(4).repeat_interleave(5), 4, 4)) == 1


def test_when_classes_are_even_a_pass_visits_every_image_once():
    labels = torch.arange(8).repeat_interleave(12)
    rows = np.array(MPerClassBatchSampler(labels, 4, 4).batches(epoch=5)).reshape(-1)
    assert sorted(rows.tolist()) == list(range(96))


def test_small_classes_are_left_out_counted_and_announced():
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3 + [3] * 1 + [4] * 4)
    with pytest.warns(SmallClassWarning, match="2 of 5 classes.*samples_per_class=4"):
        sampler = MPerClassBatchSampler(labels, 3, 4, batches_per_epoch=20, short_classes="drop")
    assert sampler.left_out == 2
    assert {int(labels[row]) for batch in sampler for row in batch} == {0, 1, 4}


def test_nothing_is_announced_when_no_class_is_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MPerClassBatchSampler([0, 0, 1, 1], 2, 2).left_out == 0


@pytest.mark.parametrize("kind", [MPerClassBatchSampler, HierarchicalBatchSampler])
def test_a_batch_has_all_classes_where_there_are_fewer_than_it_was_to_have_and_that_is_said(kind):
    labels = np.repeat(np.arange(6), 4)
    of = {} if kind is MPerClassBatchSampler else {"super_labels": labels % 2, "batches_per_pair": 3}
    with pytest.warns(SmallClassWarning, match="6 classes.*classes_per_batch=16") as caught:
        sampler = kind(labels, classes_per_batch=16, samples_per_class=2, **of)
    assert caught[0].filename == __file__ and len(sampler.notes) == 1
    assert sampler.batch_size == 12 and all(len(set(labels[batch])) == 6 for batch in sampler)
    with pytest.warns(SmallClassWarning, match="2 classes: .*4 rows|left out"):
        dropped = MPerClassBatchSampler([0] * 5 + [1] * 4 + [2] * 2 + [3], 3, 4, short_classes="drop")
    assert dropped.classes_per_batch == 2


def test_no_two_usable_classes_are_an_error_that_says_what_to_set():
    with pytest.raises(ValueError, match=r"2 classes .*4 rows.* 4 classes \(11 rows\) 1") as caught:
        MPerClassBatchSampler([0] * 5 + [1] * 3 + [2] * 2 + [3], 3, 4, short_classes="drop")
    assert "lower samples_per_class to 3, or take short_classes=fewer" in str(caught.value)
    with pytest.raises(ValueError, match="Add rows to these classes$"):  # nothing else would help
        MPerClassBatchSampler([0] * 5 + [1] + [2] + [3], 3, 4, short_classes="drop")
    for labels in ([], [7] * 100):
        with pytest.raises(ValueError, match=f"a batch needs 2 classes; of {min(len(labels), 1)} classes") as caught:
            MPerClassBatchSampler(labels, 2, 2)
        assert "short_classes" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"classes_per_batch": 0}, ValueError, "classes_per_batch counts classes and must be an integer >= 1; got 0"),
        ({"samples_per_class": -1}, ValueError, "samples_per_class .* >= 1; got -1"),
        ({"batches_per_epoch": 0}, ValueError, "batches_per_epoch counts batches"),
        ({"seed": 2**32}, ValueError, "seed .* in 0 .. 4294967295"),
        ({"seed": True}, ValueError, "seed chooses the batches and must be an integer"),
        ({"samples_per_class": 2.0}, ValueError, 'samples_per_class counts rows, or is "all", and must .*; got 2.0'),
        ({"samples_per_class": "some"}, ValueError, "got 'some'"),
        ({"short_classes": "keep"}, ValueError, "short_classes must be 'repeat', 'fewer' or 'drop'; got 'keep'"),
        ({"labels": [0.0, 1.0]}, TypeError, "labels must be integers or strings"),
        ({"labels": torch.zeros(4, 3, dtype=torch.long)}, ValueError, r"labels must be \[row\].*multi-hot"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        MPerClassBatchSampler(**{"labels": [0, 0, 1, 1], "classes_per_batch": 2, "samples_per_class": 2, **arguments})


@pytest.mark.parametrize("kind", [np.int64, np.uint8, torch.tensor])
def test_integers_of_numpy_and_torch_are_integers_and_the_state_is_plain(kind):
    labels = np.repeat(np.arange(6), 4)
    made = HierarchicalBatchSampler(
        labels,
        labels // 3,
        kind(4),
        kind(2),
        batches_per_pair=kind(5),
        batches_per_epoch=kind(4),
        seed=kind(3),
        rank=kind(1),
        world_size=kind(2),
        super_labels_per_batch=kind(2),
    )
    plain = HierarchicalBatchSampler(labels, labels // 3, 4, 2, 5, 4, 3, 1, 2)
    made.set_epoch(kind(2))
    plain.set_epoch(2)
    for state in (made.state_dict(), made.state_dict(batches_done=kind(1))):
        assert {type(value) for value in state.values()} <= {int, str}
    assert made.state_dict() == plain.state_dict() and list(made) == list(plain)
    shuffled = ShuffledBatches(kind(8), kind(4), seed=kind(2))
    assert list(shuffled) == list(ShuffledBatches(8, 4, seed=2)) and type(shuffled.state_dict()["images"]) is int


@pytest.mark.parametrize("done", [1.5, -1, 4])
def test_a_state_with_a_wrong_number_of_batches_is_refused_before_it_is_saved(done):
    sampler = MPerClassBatchSampler([0, 0, 1, 1], 2, 2, batches_per_epoch=3)
    with pytest.raises(ValueError, match=rf"batches_done .* in 0 \.\. 3; got {done}"):
        sampler.state_dict(batches_done=done)


@pytest.mark.parametrize("done", [0, 1, 3, 4])
def test_an_iteration_has_a_state_that_a_stateful_loader_saves_and_loads(done):
    def fresh() -> MPerClassBatchSampler:
        return MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=4, seed=2)

    whole, sampler, resumed = fresh(), fresh(), fresh()
    list(sampler)
    iteration = iter(sampler)
    for _ in range(done):
        next(iteration)
    # in the order of torchdata's StatefulDataLoader
    of_sampler, of_iteration = sampler.state_dict(), iteration.state_dict()
    resumed.load_state_dict(of_sampler)
    iteration = iter(resumed)
    iteration.load_state_dict(of_iteration)
    expected = whole.batches(1)[done:] or whole.batches(2)
    assert list(iteration) == expected and list(resumed) == whole.batches(2 if done < 4 else 3)


def test_labels_may_be_a_column_of_a_data_frame_which_holds_objects():
    words, numbers = ["b", "b", "a", "a", "c", "c"], [7, 7, -1, -1, 9, 9]
    for given in (words, numbers):
        expected = list(MPerClassBatchSampler(given, 2, 2))
        assert list(MPerClassBatchSampler(np.array(given, dtype=object), 2, 2)) == expected
    # numpy would make strings of all, so that a missing label would be a class of its own
    for mixed in (["a", "a", float("nan"), "b"], [1, 1, "b", "b"], np.array(["a", "a", None, "b"])):
        with pytest.raises(TypeError, match="labels must be integers or strings"):
            MPerClassBatchSampler(mixed, 2, 1)


def test_batches_are_a_function_of_seed_and_epoch():
    def rows(seed: int, epoch: int) -> list[list[int]]:
        sampler = MPerClassBatchSampler(uneven_labels(), 4, 3, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert rows(0, 2) == rows(0, 2)
    assert len({str(rows(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_batches_are_the_same_in_another_process_and_on_another_machine():
    sampler = MPerClassBatchSampler([i % 5 for i in range(30)], 3, 2, seed=11)
    sampler.set_epoch(4)
    torch.manual_seed(99)
    np.random.seed(99)  # global generators play no part
    # what another process on another machine has drawn
    assert list(sampler)[:2] == [[9, 19, 23, 3, 22, 27], [15, 20, 16, 11, 24, 4]]


@pytest.mark.parametrize("done", [0, 1, 17, 29, 30])
def test_a_resumed_epoch_goes_on_with_the_batches_that_were_to_come(done):
    def fresh() -> MPerClassBatchSampler:
        return MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=30, seed=2)

    whole = fresh()
    whole.set_epoch(6)
    expected = list(whole)
    stopped = fresh()
    stopped.set_epoch(6)
    state = pickle.loads(pickle.dumps(stopped.state_dict(batches_done=done)))
    resumed = fresh()
    resumed.load_state_dict(state)
    assert len(resumed) == 30  # the epoch is as long as ever
    assert list(resumed) == expected[done:]
    assert list(resumed) == whole.batches(7)  # start_batch applied once, and the next epoch


def test_start_batch_is_consumed_when_iteration_starts_and_survives_set_epoch():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=10)
    sampler.start_batch = 7
    sampler.set_epoch(1)
    first = iter(sampler)
    next(first)
    assert sampler.start_batch == 0
    assert len(list(first)) == 2
    sampler.start_batch = 11
    with pytest.raises(ValueError, match="start_batch must be 0 .. 10"):
        next(iter(sampler))


def test_an_iteration_under_way_is_not_moved_by_set_epoch():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=10)
    under_way = iter(sampler)
    next(under_way)
    sampler.set_epoch(1)
    rest = list(under_way)
    assert [batch.epoch for batch in rest] == [0] * 9
    assert rest == sampler.batches(0)[1:]
    assert next(iter(sampler)).epoch == 1


# --- epochs that nobody numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["m_per_class", "hierarchical", "shuffled"])
def test_an_iteration_that_nobody_numbered_is_the_next_epoch(kind):
    sampler = ShuffledBatches(40, 6) if kind == "shuffled" else sampler_of(kind)
    assert [list(sampler) for _ in range(3)] == [sampler.batches(epoch) for epoch in range(3)]
    assert len({str(sampler.batches(epoch)) for epoch in range(3)}) == 3
    sampler.set_epoch(7)
    assert [list(sampler) for _ in range(2)] == [sampler.batches(7), sampler.batches(8)]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loop_over_a_loader_sees_one_epoch_after_the_other(workers, persistent):
    sampler = sampler_of("m_per_class", seed=3)
    options = {"persistent_workers": persistent} if workers else {}
    loader = DataLoader(Rows(), batch_sampler=sampler, num_workers=workers, **options)
    for epoch in range(3):  # with workers a loader makes two iterators at its start, and reads the second
        assert [index.tolist() for _, index in loader] == sampler.batches(epoch)


def test_an_iterator_that_is_never_read_is_no_epoch_and_one_that_is_left_is_one():
    sampler = sampler_of("m_per_class")
    iter(sampler), iter(sampler)
    assert next(iter(sampler)) == sampler.batches(0)[0]
    assert next(iter(sampler)) == sampler.batches(1)[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [0, 7, 20])
def test_a_plain_loop_that_was_stopped_goes_on_exactly(workers, done):
    def loader(sampler) -> DataLoader:
        return DataLoader(Rows(), batch_sampler=sampler, num_workers=workers)

    stopped = sampler_of("m_per_class")
    whole = [*loader(stopped), *loader(stopped)]
    under_way = iter(loader(stopped))  # the third epoch
    for _ in range(done):
        next(under_way)
    resumed = sampler_of("m_per_class")
    resumed.load_state_dict(stopped.state_dict(batches_done=done) if done else sampler_of("m_per_class").state_dict())
    epoch = 2 if done else 0
    expected = [*stopped.batches(epoch)[done:], *stopped.batches(epoch + 1)]
    assert [index.tolist() for _ in range(2) for _, index in loader(resumed)] == expected
    assert len(whole) == 40


def test_a_state_between_two_epochs_goes_on_with_the_next():
    sampler = sampler_of("m_per_class")
    list(sampler), list(sampler)
    assert sampler.state_dict()["epoch"] == 2 and sampler.state_dict(batches_done=20)["epoch"] == 1
    resumed = sampler_of("m_per_class")
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == list(sampler) == sampler.batches(2)


def test_a_state_of_other_data_or_settings_is_refused():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3)
    with pytest.raises(ValueError, match="classes_per_batch: saved 5, now 4"):
        MPerClassBatchSampler(uneven_labels(), 4, 3, len(sampler)).load_state_dict(sampler.state_dict())
    with pytest.raises(ValueError, match="num_images: saved"):
        MPerClassBatchSampler(uneven_labels(1), 5, 3, len(sampler)).load_state_dict(sampler.state_dict())
    with pytest.raises(ValueError, match="a sampler state holds"):
        sampler.load_state_dict({"epoch": 1})


def test_batches_carry_their_epoch_through_pickling():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3)
    sampler.set_epoch(8)
    batch = pickle.loads(pickle.dumps(next(iter(sampler))))
    assert isinstance(batch, EpochList) and batch.epoch == 8 and len(batch) == 15


def test_sixty_thousand_images_of_eleven_thousand_classes_stay_exact():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(11_000), rng.integers(2, 10, 11_000)).tolist()
    with pytest.warns(SmallClassWarning):
        sampler = MPerClassBatchSampler(labels, 32, 4, short_classes="drop")
    rows = np.array(sampler.batches(0)).reshape(len(sampler), 32, 4)
    of = np.asarray(labels)[rows]
    assert (of == of[:, :, :1]).all()
    assert all(len(set(row)) == 32 for row in of[:, :, 0].tolist())
    assert all(len(set(row)) == 128 for row in rows.reshape(len(sampler), -1).tolist())


# --- classes with too few images -------------------------------------------------------------------------------------

SIZES = [9, 5, 4, 3, 2, 1, 1]


def long_tail() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    labels = torch.repeat_interleave(torch.arange(len(SIZES)) * 3 - 4, torch.tensor(SIZES))
    return labels[torch.randperm(len(labels), generator=g)]


def number_of(labels: torch.Tensor, batch: list[int]) -> dict[int, Counter[int]]:
    """Class (its place in SIZES) -> image -> how often."""
    found: dict[int, Counter[int]] = {}
    for row in batch:
        found.setdefault((int(labels[row]) + 4) // 3, Counter())[row] += 1
    return found


def test_repeat_brings_every_class_to_k_with_no_image_much_more_often_than_another():
    labels = long_tail()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left out, so nothing is announced
        sampler = MPerClassBatchSampler(labels, 4, 4, 40, short_classes="repeat")
    assert (sampler.left_out, sampler.batch_size) == (0, 16)
    assert sampler.ragged and sampler.positives is None and sampler.even
    seen = set()
    for batch in sampler:
        found = number_of(labels, batch)
        assert len(batch) == 16 and len(found) == 4
        for which, images in found.items():
            assert sum(images.values()) == 4 and len(images) == min(SIZES[which], 4)
            assert max(images.values()) - min(images.values()) <= 1
            seen.add(which)
    assert seen == set(range(7))


def test_fewer_brings_what_a_class_has():
    labels = long_tail()
    sampler = MPerClassBatchSampler(labels, 4, 4, 40, short_classes="fewer")
    assert sampler.ragged and sampler.positives is None and not sampler.even and sampler.batch_size == 4 + 4 + 4 + 3
    for batch in sampler:
        assert len(set(batch)) == len(batch) <= 16
        for which, images in number_of(labels, batch).items():
            assert len(images) == min(SIZES[which], 4)


def test_all_brings_all_images_of_a_class():
    labels = long_tail()
    sampler = MPerClassBatchSampler(labels, 3, "all")
    assert sampler.batch_size == 9 + 5 + 4 and len(sampler) == 2  # 7 classes, 3 at a time
    for batch in sampler:
        found = number_of(labels, batch)
        assert len(found) == 3 and all(len(images) == SIZES[which] for which, images in found.items())
    even = MPerClassBatchSampler(torch.arange(6).repeat_interleave(5), 3, "all")
    assert even.positives == 4 and not even.ragged and even.even


def test_an_epoch_is_about_one_pass_in_number():
    labels = long_tail()
    assert len(MPerClassBatchSampler(labels, 2, 4, short_classes="repeat")) == 25 // 8
    assert len(MPerClassBatchSampler(labels, 2, 4, short_classes="fewer")) == 25 * 7 // (2 * 19)


@pytest.mark.parametrize("mode", ["repeat", "fewer", "drop"])
def test_where_no_class_is_short_nothing_depends_on_what_becomes_of_short_ones(mode):
    labels = uneven_labels()
    plain, other = (
        MPerClassBatchSampler(labels, 5, 4, seed=2),
        MPerClassBatchSampler(labels, 5, 4, seed=2, short_classes=mode),
    )
    assert other.batches(3) == plain.batches(3) and len(other) == len(plain)
    assert other.positives == 3 and not other.ragged


@pytest.mark.parametrize("mode", ["repeat", "fewer"])
@pytest.mark.parametrize("kind", ["m_per_class", "hierarchical"])
def test_short_classes_come_in_exactly_the_same_batches_again_and_in_parts(kind, mode):
    labels = long_tail()

    def sampler(**options):
        if kind == "m_per_class":
            return MPerClassBatchSampler(labels, 4, 4, 12, seed=5, short_classes=mode, **options)
        supers = (labels + 4) // 3 % 2
        return HierarchicalBatchSampler(labels, supers, 4, 4, 12, seed=5, short_classes=mode, **options)

    whole = sampler().batches(2)
    state = {**sampler().state_dict(), "epoch": 2, "start_batch": 5}
    assert state["short_classes"] == mode
    for rank in range(3):
        part = sampler(rank=rank, world_size=3)
        part.load_state_dict(state)
        assert list(part) == [batch[rank::3] for batch in whole[5:]]
    wrong = {**state, "short_classes": "repeat" if mode == "fewer" else "fewer"}
    with pytest.raises(ValueError, match="short_classes: saved"):
        sampler().load_state_dict(wrong)


def test_processes_that_would_have_no_image_of_a_small_batch_are_named():
    labels = [0, 1, 2, 2, 2, 2, 2, 2]
    with pytest.raises(ValueError, match="3 processes .* 2 to 5 rows"):
        MPerClassBatchSampler(labels, 2, 4, short_classes="fewer", rank=0, world_size=3)


@pytest.mark.parametrize("name", [name for name in RANK_LOSSES if name != "spearman"])
def test_a_repeated_image_is_never_its_own_match_where_the_loss_is_given_ids(name):
    labels = long_tail()
    batch = next(iter(MPerClassBatchSampler(labels, 7, 4, short_classes="repeat")))
    embeddings = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = LOSSES[name]()
    loss(embeddings[batch], labels[batch], ids=torch.tensor(batch))
    single = torch.tensor([SIZES[(int(labels[row]) + 4) // 3] == 1 for row in batch])
    assert single.any() and torch.equal(loss.stats["counted"], ~single)
    loss(embeddings[batch], labels[batch])
    assert loss.stats["counted"].all()  # without ids its copies are what it is asked to find


def test_labels_may_be_strings_and_arrays_and_any_integers():
    names = ["b", "a", "b", "c", "a", "c"]
    number = {"a": -(2**40), "b": 0, "c": 2**60}
    as_text = MPerClassBatchSampler(names, 2, 2, seed=1)
    for labels in (np.array(names), [number[name] for name in names], np.array([number[n] for n in names], np.int64)):
        assert MPerClassBatchSampler(labels, 2, 2, seed=1).batches(4) == as_text.batches(4)
    assert HierarchicalBatchSampler(names, ["x", "y", "x", "x", "y", "x"], 2, 2).pairs.tolist() == [["x", "y"]]
    for wrong in (np.array([1.5, 2.0]), np.array([True, False]), [object()]):
        with pytest.raises(TypeError, match="labels must be integers or strings"):
            MPerClassBatchSampler(wrong, 1, 1)


# --- settings of a run -----------------------------------------------------------------------------------------------


def test_settings_of_a_run_make_its_sampler():
    labels = long_tail()
    settings = {"classes_per_batch": 3, "samples_per_class": 4, "batches_per_epoch": None}
    one = class_batches(
        labels, seed=2, batches_per_pair=None, pair_order="consecutive", short_classes="fewer", **settings
    )
    assert isinstance(one, MPerClassBatchSampler) and one.short_classes == "fewer" and one.seed == 2
    supers = (labels + 4) // 3 % 2
    two = class_batches(
        labels, supers, batches_per_pair=2, pair_order="consecutive", short_classes="repeat", **settings
    )
    assert isinstance(two, HierarchicalBatchSampler) and two.pair_order == "consecutive"
    with pytest.raises(ValueError, match="sampler.batches_per_pair .*super-labels"):
        class_batches(labels, batches_per_pair=2, **settings)


def test_the_sampler_of_a_run_notes_what_it_could_not_do_and_names_settings_as_they_are_typed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the summary of the run says it
        sampler = class_batches([0, 0, 1, 1, 2], classes_per_batch=4, samples_per_class=2, short_classes="drop")
    assert sampler.classes_per_batch == 2
    assert ["sampler.classes_per_batch=4" in as_settings(sampler.notes[0]), len(sampler.notes)] == [True, 2]
    for wrong in ("classes_per_batch", "samples_per_class", "batches_per_epoch", "batches_per_pair"):
        with pytest.raises(ValueError, match=f"sampler.{wrong} .* >= 1; got 0"):
            class_batches([0, 0, 1, 1], [0, 0, 1, 1], **{wrong: 0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes_per_batch": 0}, "classes_per_batch .* >= 1"),
        ({"samples_per_class": 0}, 'samples_per_class counts rows, or is "all", .* >= 1; got 0'),
        ({"pair_order": "random"}, "pair_order must be 'shuffled' or 'consecutive'; got 'random'"),
        ({"batches_per_pair": 2, "classes_per_batch": 1}, "classes_per_batch must be >= 2, one class of each"),
        (
            {"batches_per_pair": 2, "classes_per_batch": 3, "super_labels_per_batch": 4},
            "classes_per_batch must be >= 4",
        ),
    ],
)
def test_settings_out_of_range_are_named_without_any_data(settings, message):
    with pytest.raises(ValueError, match=message):
        check_settings(**settings)


# --- parts of a batch for several processes --------------------------------------------------------------------------


def super_labels_of(labels: torch.Tensor, supers: int = 4) -> torch.Tensor:
    return torch.unique(labels, return_inverse=True)[1] % supers * 5 - 7  # any values


def sampler_of(kind: str, per_batch: int = 5, per_class: int = 3, **options):
    labels = uneven_labels()
    if kind == "m_per_class":
        return MPerClassBatchSampler(labels, per_batch, per_class, 20, **options)
    return HierarchicalBatchSampler(labels, super_labels_of(labels), per_batch, per_class, 3, **options)


KINDS = ["m_per_class", "hierarchical"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_the_parts_of_all_processes_make_up_the_batches_of_one_process(kind, world_size):
    whole = sampler_of(kind, seed=3)
    parts = [sampler_of(kind, seed=3, rank=rank, world_size=world_size) for rank in range(world_size)]
    for sampler in (whole, *parts):
        sampler.set_epoch(2)
    assert {len(part) for part in parts} == {len(whole)}
    assert all(part.even == (15 % world_size == 0) for part in parts)
    for batch, *shards in zip(whole, *parts, strict=True):
        assert [batch[rank::world_size] for rank in range(world_size)] == shards
        assert max(map(len, shards)) - min(map(len, shards)) == int(15 % world_size > 0)
        assert all(shard.epoch == 2 for shard in shards)


def test_every_process_sees_nearly_all_classes_of_a_batch():
    labels = uneven_labels()
    for rank in range(4):
        for batch in MPerClassBatchSampler(labels, 6, 4, 10, rank=rank, world_size=4):
            assert len(set(labels[batch].tolist())) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_with_another_number_of_processes(kind):
    whole = sampler_of(kind, seed=1)
    whole.set_epoch(4)
    expected = list(whole)
    state = sampler_of(kind, seed=1, rank=1, world_size=2)
    state.set_epoch(4)
    saved = state.state_dict(batches_done=7)
    assert not {"rank", "world_size"} & set(saved)
    for rank in range(3):
        resumed = sampler_of(kind, seed=1, rank=rank, world_size=3)
        resumed.load_state_dict(saved)
        assert list(resumed) == [batch[rank::3] for batch in expected[7:]]


def test_processes_are_those_of_torch_distributed_when_an_iteration_starts(tmp_path, monkeypatch):
    sampler = sampler_of("m_per_class")  # made before the processes know each other
    expected = sampler.batches(0)

    def of_epoch_0(sampler) -> list[list[int]]:
        sampler.set_epoch(0)
        return list(sampler)

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert of_epoch_0(sampler) == expected
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
        assert of_epoch_0(sampler) == [batch[2::4] for batch in expected] and not sampler.even
        assert list(sampler_of("m_per_class", rank=0, world_size=1)) == expected  # what is given counts
    finally:
        torch.distributed.destroy_process_group()
    assert of_epoch_0(sampler) == expected and sampler.even


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0, "world_size": 16}, ValueError, "16 processes cannot share a batch of 5 x 3 = 15 rows"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank .* an integer in 0 .. 1; got 2"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank .* an integer in 0 .. 1; got -1"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size .* >= 1; got 0"),
        ({"rank": 0, "world_size": 2.0}, ValueError, "world_size is the number of processes and .*; got 2.0"),
        ({"rank": 1}, ValueError, "rank and world_size, .*; got rank=1, world_size=None"),
        ({"world_size": 2}, ValueError, "rank and world_size, .*; got rank=None, world_size=2"),
    ],
)
def test_wrong_processes_are_named(kind, options, error, message):
    with pytest.raises(error, match=message):
        sampler_of(kind, **options)


def test_too_many_processes_are_named_when_they_are_known(monkeypatch):
    sampler = sampler_of("m_per_class")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 16)
    with pytest.raises(ValueError, match="16 processes cannot share"):
        next(iter(sampler))


# --- pairs of super-labels -------------------------------------------------------------------------------------------


def pairs_of(sampler, supers: torch.Tensor, epoch: int) -> list[tuple[int, ...]]:
    """The super-labels of each batch."""
    return [tuple(np.unique(supers[batch].numpy()).tolist()) for batch in sampler.batches(epoch)]


@pytest.mark.parametrize(("per_batch", "per_class"), [(2, 2), (4, 4), (5, 3), (6, 1)])
def test_every_batch_holds_p_classes_with_k_images_half_from_each_of_two_super_labels(per_batch, per_class):
    labels = uneven_labels(classes=16)
    supers = super_labels_of(labels)
    sampler = HierarchicalBatchSampler(labels, supers, per_batch, per_class, batches_per_pair=6)
    assert len(sampler) == 6 * 6 and sampler.pairs_left_out == 0
    larger: Counter[int] = Counter()
    for batch in sampler:
        assert all(type(row) is int for row in batch)
        assert len(set(batch)) == len(batch) == per_batch * per_class
        classes, counts = np.unique(labels[batch].numpy(), return_counts=True)
        assert counts.tolist() == [per_class] * per_batch
        of_super = Counter(int(supers[labels == label][0]) for label in classes.tolist())
        assert len(of_super) == 2 and max(of_super.values()) - min(of_super.values()) == per_batch % 2
        larger[of_super.most_common(1)[0][0]] += per_batch % 2
    if per_batch % 2:
        assert set(larger.values()) == {9}  # the larger half goes round


def test_every_pair_of_super_labels_comes_equally_often_in_random_order():
    labels = uneven_labels(classes=16)
    supers = super_labels_of(labels)
    sampler = HierarchicalBatchSampler(labels, supers, 4, 2, batches_per_pair=5)

    def pairs(epoch: int) -> list[tuple[int, ...]]:
        return pairs_of(sampler, supers, epoch)

    every = list(itertools.combinations(sorted(set(supers.tolist())), 2))
    assert sampler.pairs.tolist() == [list(pair) for pair in every]
    for epoch in (0, 1):
        assert Counter(pairs(epoch)) == dict.fromkeys(every, 5)
    assert pairs(0) != pairs(1) and pairs(0) != sorted(pairs(0))


@pytest.mark.parametrize("order", ["shuffled", "consecutive"])
def test_the_batches_of_a_pair_stand_together_if_they_are_to(order):
    labels = uneven_labels(classes=16)
    supers = super_labels_of(labels)
    sampler = HierarchicalBatchSampler(labels, supers, 4, 2, batches_per_pair=5, pair_order=order)
    every = list(itertools.combinations(sorted(set(supers.tolist())), 2))
    runs = [[pair for pair, _ in itertools.groupby(pairs_of(sampler, supers, epoch))] for epoch in (0, 1)]
    if order == "consecutive":
        assert all(sorted(run) == every for run in runs) and runs[0] != runs[1]
    else:
        assert all(len(run) > 2 * len(every) for run in runs)
    assert Counter(pairs_of(sampler, supers, 0)) == dict.fromkeys(every, 5)


@pytest.mark.parametrize(("together", "per_batch"), [(1, 4), (3, 6), (3, 7), (3, 8), (4, 9)])
def test_a_batch_may_come_from_any_number_of_super_labels(together, per_batch):
    labels = torch.arange(20).repeat_interleave(3)
    supers = labels % 4
    sampler = HierarchicalBatchSampler(labels, supers, per_batch, 2, 6, super_labels_per_batch=together)
    every = list(itertools.combinations(range(4), together))
    assert sampler.pairs.tolist() == [list(one) for one in every]
    given: Counter[int] = Counter()
    for batch, found in zip(sampler.batches(0), pairs_of(sampler, supers, 0), strict=True):
        assert found in every and len(set(batch)) == 2 * per_batch
        of_super = Counter(supers[batch[::2]].tolist())
        assert max(of_super.values()) - min(of_super.values()) <= 1  # as even as can be
        given.update(of_super)
    assert max(given.values()) - min(given.values()) <= 1 + len(every)


def test_super_labels_with_few_classes_are_filled_up_by_all_the_others():
    labels = torch.arange(11).repeat_interleave(2)
    supers = torch.tensor([0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2])[labels]
    sampler = HierarchicalBatchSampler(labels, supers, 9, 2, 4, super_labels_per_batch=3)
    for batch in sampler:
        assert Counter(supers[batch[::2]].tolist()) == {0: 1, 1: 4, 2: 4}


def test_too_many_sets_of_super_labels_are_refused_before_they_are_listed():
    labels = torch.arange(60).repeat_interleave(2)
    with pytest.raises(ValueError, match="60 super-labels .*75,394,027,566 sets of 10"):
        HierarchicalBatchSampler(labels, labels, 10, 2, super_labels_per_batch=10)


def test_another_number_of_batches_cuts_the_round_or_goes_on_with_another():
    labels = uneven_labels(classes=16)
    supers = super_labels_of(labels)

    def of_pairs(batches: int) -> Counter[str]:
        sampler = HierarchicalBatchSampler(labels, supers, 4, 2, batches_per_pair=2, batches_per_epoch=batches)
        assert len(sampler) == batches
        return Counter(str(np.unique(supers[batch].numpy())) for batch in sampler)

    assert sum(of_pairs(5).values()) == 5 and max(of_pairs(5).values()) <= 2
    assert set(of_pairs(24).values()) == {4}
    assert set(of_pairs(13).values()) == {2, 3}


def test_classes_and_images_are_dealt_evenly_within_a_super_label():
    labels = torch.arange(12).repeat_interleave(8)
    supers = labels // 4  # three super-labels of four classes
    sampler = HierarchicalBatchSampler(labels, supers, 4, 3, batches_per_pair=8)
    rows = np.array(sampler.batches(3)).reshape(-1)
    per_class = torch.bincount(labels[rows])
    assert per_class.tolist() == [3 * 8] * 12  # 16 of 24 batches take 2 of 4 classes
    assert set(np.bincount(rows).tolist()) == {3}  # each of the 8 images comes 3 times


def test_a_super_label_with_few_classes_gives_all_it_has_and_the_other_gives_the_rest():
    labels = torch.arange(9).repeat_interleave(3)
    supers = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2])[labels]
    with pytest.warns(SmallClassWarning, match="1 of 3 pairs .* 6 classes"):
        sampler = HierarchicalBatchSampler(labels, supers, 6, 3, batches_per_pair=4)
    assert sampler.pairs.tolist() == [[0, 2], [1, 2]] and sampler.pairs_left_out == 1
    for batch in sampler:
        of_super = Counter(supers[batch[::3]].tolist())
        assert of_super in ({0: 1, 2: 5}, {1: 2, 2: 4})
        assert len(set(batch)) == 18


def test_a_super_label_without_usable_classes_gets_no_batches():
    labels = torch.tensor([0] * 4 + [1] * 4 + [2] * 4 + [3] * 2 + [4] * 1)
    supers = torch.tensor([0, 0, 1, 2, 2])[labels]
    with pytest.warns(SmallClassWarning) as caught:
        sampler = HierarchicalBatchSampler(labels, supers, 2, 4, batches_per_pair=1, short_classes="drop")
    assert [str(w.message)[:9] for w in caught] == ["2 of 5 cl", "2 of 3 pa"]
    assert all(w.filename == __file__ for w in caught)
    assert sampler.left_out == 2 and sampler.pairs.tolist() == [[0, 1]] and len(sampler) == 1


@pytest.mark.parametrize("done", [0, 1, 11, 18])
def test_a_resumed_epoch_of_pairs_goes_on_with_the_batches_that_were_to_come(done):
    whole = sampler_of("hierarchical", seed=2)
    whole.set_epoch(6)
    expected = list(whole)
    stopped = sampler_of("hierarchical", seed=2)
    stopped.set_epoch(6)
    state = pickle.loads(pickle.dumps(stopped.state_dict(batches_done=done)))
    resumed = sampler_of("hierarchical", seed=2)
    resumed.load_state_dict(state)
    assert len(resumed) == len(expected) == 18
    assert list(resumed) == expected[done:]
    assert list(resumed) == whole.batches(7)


def test_a_state_of_other_pairs_or_of_another_sampler_is_refused():
    sampler, labels = sampler_of("hierarchical"), uneven_labels()
    other = HierarchicalBatchSampler(labels, super_labels_of(labels), 5, 3, 9, batches_per_epoch=18)
    with pytest.raises(ValueError, match="batches_per_pair: saved 3, now 9"):
        other.load_state_dict(sampler.state_dict())
    other = HierarchicalBatchSampler(labels, super_labels_of(labels, 3), 5, 3, 3, batches_per_epoch=18)
    with pytest.raises(ValueError, match="num_pairs: saved 6, now 3"):
        other.load_state_dict(sampler.state_dict())
    with pytest.raises(ValueError, match="a sampler state holds"):
        sampler_of("m_per_class").load_state_dict(sampler.state_dict())


def test_batches_of_pairs_are_a_function_of_seed_and_epoch_and_stay_what_they_are():
    def rows(seed: int, epoch: int) -> list[list[int]]:
        sampler = sampler_of("hierarchical", seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    torch.manual_seed(5)
    np.random.seed(5)  # global generators play no part
    assert rows(0, 2) == rows(0, 2)
    assert len({str(rows(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6
    labels = torch.arange(6).repeat_interleave(3)
    sampler = HierarchicalBatchSampler(labels, labels // 2, 3, 2, 1, seed=11)
    assert list(sampler) == [[8, 7, 15, 17, 12, 13], [3, 4, 9, 10, 6, 7], [1, 2, 16, 15, 14, 13]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batches_per_pair": 0}, ValueError, "batches_per_pair .* >= 1; got 0"),
        ({"batches_per_pair": 1.5}, ValueError, "batches_per_pair counts batches"),
        ({"classes_per_batch": 1}, ValueError, "classes_per_batch must be >= 2, one class of each super-label"),
        ({"super_labels": [0, 0, 1]}, ValueError, r"super_labels need one entry per row \(8\); got 3"),
        ({"super_labels": [0.5] * 8}, TypeError, "super_labels must be integers"),
        ({"super_labels": [[0]] * 8}, ValueError, r"super_labels must be \[row\]"),
        ({"super_labels": [3, 5, 3, 3, 5, 5, 5, 5]}, ValueError, "class 7 has rows of the super-labels 3, 5"),
        ({"super_labels": [0] * 8}, ValueError, "no two of 1 super-labels have 2 classes"),
        ({"samples_per_class": 3, "short_classes": "drop"}, ValueError, "2 classes with at least 3 rows each"),
    ],
)
def test_wrong_arguments_of_pairs_are_named(arguments, error, message):
    given = {"labels": [7, 7, 8, 8, 9, 9, 1, 1], "super_labels": [0, 0, 0, 0, 1, 1, 1, 1], "classes_per_batch": 2}
    with pytest.raises(error, match=message):
        HierarchicalBatchSampler(**{**given, "samples_per_class": 2, **arguments})


def test_the_best_pair_is_named_when_none_is_large_enough():
    labels = torch.arange(6).repeat_interleave(2)
    with pytest.raises(ValueError, match="3 super-labels .*5 classes .* 4"):
        HierarchicalBatchSampler(labels, labels // 2, 5, 2)


class Rows(Dataset):
    def __getitem__(self, index):
        return torch.full((3, 4, 4), index), index

    def __len__(self):
        return 10_000


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_data_loader_makes_4_d_batches_of_flat_lists_of_indices(kind, workers):
    sampler = sampler_of(kind, seed=3, rank=1, world_size=2)
    loader = DataLoader(Rows(), batch_sampler=sampler, num_workers=workers)
    found = list(loader)
    assert len(found) == len(loader) == len(sampler)
    assert [index.tolist() for _, index in found] == [batch[1::2] for batch in sampler.batches(0)]
    assert {images.shape for images, _ in found} == {(7, 3, 4, 4)}
