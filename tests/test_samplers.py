from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from rankgrad.datasets.samplers import EpochList, HierarchicalBatchSampler, MPerClassBatchSampler, SmallClassWarning


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
    rows = MPerClassBatchSampler(labels, 6, 3, batches_per_epoch=120).batches(epoch=0).reshape(-1)
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
    rows = MPerClassBatchSampler(labels, 4, 4).batches(epoch=5).reshape(-1)
    assert sorted(rows.tolist()) == list(range(96))


def test_small_classes_are_left_out_counted_and_announced():
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3 + [3] * 1 + [4] * 4)
    with pytest.warns(
        SmallClassWarning, match=r"2 of 5 classes \(4 of 17 images\) have fewer than samples_per_class=4"
    ):
        sampler = MPerClassBatchSampler(labels, 3, 4, batches_per_epoch=20)
    assert sampler.left_out == 2
    assert {int(labels[row]) for batch in sampler for row in batch} == {0, 1, 4}


def test_nothing_is_announced_when_no_class_is_left_out():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MPerClassBatchSampler([0, 0, 1, 1], 2, 2).left_out == 0


def test_too_few_usable_classes_is_an_error_that_says_what_to_set():
    with pytest.raises(
        ValueError, match=r"needs 3 classes with at least 4 images each; of 4 classes \(11 images\) 1 have"
    ) as caught:
        MPerClassBatchSampler([0] * 5 + [1] * 3 + [2] * 2 + [3], 3, 4)
    assert "Lower classes_per_batch or samples_per_class" in str(caught.value)
    with pytest.raises(ValueError, match="of 0 classes"):
        MPerClassBatchSampler([], 2, 2)
    with pytest.raises(ValueError, match="of 1 classes"):
        MPerClassBatchSampler([7] * 100, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"classes_per_batch": 0}, ValueError, "classes_per_batch must be >= 1; got 0"),
        ({"samples_per_class": -1}, ValueError, "samples_per_class must be >= 1"),
        ({"batches_per_epoch": 0}, ValueError, "batches_per_epoch must be >= 1"),
        ({"seed": 2**32}, ValueError, r"seed must be < 2\*\*32"),
        ({"seed": True}, TypeError, "seed must be an integer"),
        ({"samples_per_class": 2.0}, TypeError, "samples_per_class must be an integer; got 2.0"),
        ({"labels": [0.0, 1.0]}, TypeError, "labels must be integers"),
        ({"labels": torch.zeros(4, 3, dtype=torch.long)}, ValueError, r"labels must be \[image\].*Multi-hot"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        MPerClassBatchSampler(**{"labels": [0, 0, 1, 1], "classes_per_batch": 2, "samples_per_class": 2, **arguments})


def test_batches_are_a_function_of_seed_and_epoch():
    def rows(seed: int, epoch: int) -> list[list[int]]:
        sampler = MPerClassBatchSampler(uneven_labels(), 4, 3, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert rows(0, 2) == rows(0, 2)
    assert len({str(rows(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_batches_are_the_same_in_another_process_and_on_another_machine():
    code = (
        "from rankgrad.samplers import MPerClassBatchSampler as S; s = S([i % 5 for i in range(30)], 3, 2, seed=11);"
        "s.set_epoch(4); print(list(s)[:2])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    sampler = MPerClassBatchSampler([i % 5 for i in range(30)], 3, 2, seed=11)
    sampler.set_epoch(4)
    torch.manual_seed(99)
    np.random.seed(99)  # global generators play no part
    assert printed == str(list(sampler)[:2])
    assert printed == "[[9, 19, 23, 3, 22, 27], [15, 20, 16, 11, 24, 4]]"


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
    assert list(resumed) == expected  # start_batch applied once


def test_start_batch_is_consumed_when_iteration_starts_and_survives_set_epoch():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=10)
    sampler.start_batch = 7
    sampler.set_epoch(1)
    first = iter(sampler)
    assert sampler.start_batch == 0
    assert len(list(first)) == 3
    sampler.start_batch = 11
    with pytest.raises(ValueError, match="start_batch must be 0 .. 10"):
        iter(sampler)


def test_an_iteration_under_way_is_not_moved_by_set_epoch():
    sampler = MPerClassBatchSampler(uneven_labels(), 5, 3, batches_per_epoch=10)
    under_way = iter(sampler)
    next(under_way)
    sampler.set_epoch(1)
    rest = list(under_way)
    assert [batch.epoch for batch in rest] == [0] * 9
    assert rest == sampler.batches(0)[1:].tolist()


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
        sampler = MPerClassBatchSampler(labels, 32, 4)
    rows = sampler.batches(0).reshape(len(sampler), 32, 4)
    of = np.asarray(labels)[rows]
    assert (of == of[:, :, :1]).all()
    assert all(len(set(row)) == 32 for row in of[:, :, 0].tolist())
    assert all(len(set(row)) == 128 for row in rows.reshape(len(sampler), -1).tolist())


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
    expected = list(sampler)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert list(sampler) == expected
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
        assert list(sampler) == [batch[2::4] for batch in expected] and not sampler.even
        assert list(sampler_of("m_per_class", rank=0, world_size=1)) == expected  # what is given counts
    finally:
        torch.distributed.destroy_process_group()
    assert list(sampler) == expected and sampler.even


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0, "world_size": 16}, ValueError, "16 processes cannot share a batch of 5 x 3 = 15 images"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be 0 .. world_size - 1 = 1; got 2"),
        ({"rank": -1, "world_size": 2}, ValueError, "rank must be >= 0"),
        ({"rank": 0, "world_size": 0}, ValueError, "world_size must be >= 1"),
        ({"rank": 0, "world_size": 2.0}, TypeError, "world_size must be an integer; got 2.0"),
        ({"rank": 1}, ValueError, "go together; got rank=1, world_size=None"),
        ({"world_size": 2}, ValueError, "go together; got rank=None, world_size=2"),
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
        iter(sampler)


# --- pairs of super-labels -------------------------------------------------------------------------------------------


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
        return [tuple(np.unique(supers[batch].numpy()).tolist()) for batch in sampler.batches(epoch)]

    every = list(itertools.combinations(sorted(set(supers.tolist())), 2))
    assert sampler.pairs.tolist() == [list(pair) for pair in every]
    for epoch in (0, 1):
        assert Counter(pairs(epoch)) == dict.fromkeys(every, 5)
    assert pairs(0) != pairs(1) and pairs(0) != sorted(pairs(0))


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
    rows = sampler.batches(3).reshape(-1)
    per_class = torch.bincount(labels[rows])
    assert per_class.tolist() == [3 * 8] * 12  # 16 of 24 batches take 2 of 4 classes
    assert set(np.bincount(rows).tolist()) == {3}  # each of the 8 images comes 3 times


def test_a_super_label_with_few_classes_gives_all_it_has_and_the_other_gives_the_rest():
    labels = torch.arange(9).repeat_interleave(3)
    supers = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2])[labels]
    with pytest.warns(SmallClassWarning, match="1 of 3 pairs of super-labels have fewer than classes_per_batch=6"):
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
        sampler = HierarchicalBatchSampler(labels, supers, 2, 4, batches_per_pair=1)
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
    assert list(resumed) == expected


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
        ({"batches_per_pair": 0}, ValueError, "batches_per_pair must be >= 1; got 0"),
        ({"batches_per_pair": 1.5}, TypeError, "batches_per_pair must be an integer"),
        ({"classes_per_batch": 1}, ValueError, "classes_per_batch must be >= 2, one class of each super-label"),
        ({"super_labels": [0, 0, 1]}, ValueError, r"super_labels need one entry per image \(8\); got 3"),
        ({"super_labels": [0.5] * 8}, TypeError, "super_labels must be integers"),
        ({"super_labels": [[0]] * 8}, ValueError, r"super_labels must be \[image\]"),
        ({"super_labels": [3, 5, 3, 3, 5, 5, 5, 5]}, ValueError, "class 7 has images of the super-labels 3, 5"),
        ({"super_labels": [0] * 8}, ValueError, "no two of 1 super-labels have 2 classes"),
        ({"samples_per_class": 3}, ValueError, "a batch needs 2 classes with at least 3 images each"),
    ],
)
def test_wrong_arguments_of_pairs_are_named(arguments, error, message):
    given = {"labels": [7, 7, 8, 8, 9, 9, 1, 1], "super_labels": [0, 0, 0, 0, 1, 1, 1, 1], "classes_per_batch": 2}
    with pytest.raises(error, match=message):
        HierarchicalBatchSampler(**{**given, "samples_per_class": 2, **arguments})


def test_the_best_pair_is_named_when_none_is_large_enough():
    labels = torch.arange(6).repeat_interleave(2)
    with pytest.raises(ValueError, match=r"no two of 3 super-labels have 5 classes .*; the best pair has 4"):
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
    assert [index.tolist() for _, index in found] == sampler.batches(0)[:, 1::2].tolist()
    assert {images.shape for images, _ in found} == {(7, 3, 4, 4)}
