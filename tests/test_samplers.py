from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from rankgrad.samplers import EpochList, MPerClassBatchSampler, SmallClassWarning


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
