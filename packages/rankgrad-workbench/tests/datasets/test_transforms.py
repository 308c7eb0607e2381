from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad_workbench.datasets.base import ImageSet, Table
from rankgrad_workbench.datasets.transforms import (
    Collate,
    InkEval,
    InkTrain,
    PhotoEval,
    PhotoTrain,
    _keys,
    _no_strip,
    counter_uniform,
    warp,
)


def ink(count: int, size: int = 28, channels: int = 1) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    images = torch.zeros(count, channels, size, size, dtype=torch.uint8)
    for image in images:  # some strokes, away from the border
        for _ in range(4):
            y, x = torch.randint(size // 4, size // 2, (2,), generator=g).tolist()
            image[:, y : y + 2, x : x + size // 3] = 255
    return list(images)


def photos(count: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randint(0, 256, (3, 40 + i, 60 - i), dtype=torch.uint8, generator=g) for i in range(count)]


# name -> transform, images it is made for
TRANSFORMS = {
    "ink_train": (InkTrain(), ink(6)),
    "ink_train_one_channel": (InkTrain(elastic=0), ink(6)),
    "ink_train_colour_resized": (InkTrain(size=20), ink(6, size=33, channels=3)),
    "ink_eval": (InkEval(), ink(6)),
    "photo_train": (PhotoTrain(size=16, resize=20, color_jitter=0.4), photos(6)),
    "photo_eval": (PhotoEval(size=16, resize=20), photos(6)),
}
RANDOM = [name for name in TRANSFORMS if "train" in name]


def test_counter_uniform_equals_splitmix64_in_plain_python():
    mask, gamma = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def uniform(seed: int, epoch: int, index: int, column: int) -> float:
        key = 0
        for part in (seed, epoch):
            key = mix((key + part + gamma) & mask)
        key = mix((key + index * gamma) & mask)
        return (mix((key + (column + 1) * gamma) & mask) >> 40) * 2.0**-24

    index = torch.tensor([0, 1, 12345, 2**40])
    for seed, epoch in ((0, 0), (7, 3), (2**63, 10**6)):
        expected = [[uniform(seed, epoch, row, column) for column in range(5)] for row in index.tolist()]
        assert counter_uniform(seed, epoch, index, 5).tolist() == expected


def test_mix_is_the_published_splitmix64():
    # first outputs from state 1234567, the check values of Rosetta Code's splitmix64 task
    from rankgrad_workbench.datasets.transforms import _GAMMA, _splitmix

    states = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * _GAMMA
    assert _splitmix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_counter_uniform_is_even_and_uncorrelated_between_neighbouring_seeds_epochs_and_images():
    index = torch.arange(20_000)
    u = counter_uniform(0, 0, index, 4)
    assert 0 <= u.min() and u.max() < 1
    counts = torch.histc(u, bins=20, min=0, max=1)
    assert ((counts - 4000).abs() < 5 * math.sqrt(4000)).all()  # 5 standard deviations
    others = [counter_uniform(1, 0, index, 4), counter_uniform(0, 1, index, 4), counter_uniform(0, 0, index + 1, 4)]
    columns = torch.cat([u, *others], dim=1).T
    correlation = torch.corrcoef(columns) - torch.eye(len(columns))
    assert correlation.abs().max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_pixels_of_an_image_depend_neither_on_its_batch_nor_on_global_generators(name):
    transform, images = TRANSFORMS[name]
    index = torch.tensor([4, 90, 2, 7, 13, 1000])
    together = transform(images, index, epoch=5)
    assert together.dtype == torch.float32 and together.is_contiguous()
    torch.manual_seed(123)
    np.random.seed(123)
    order = [3, 0, 5]
    apart = transform([images[i] for i in order], index[order], epoch=5)
    torch.testing.assert_close(apart, together[order], rtol=0, atol=1e-6)
    assert torch.equal(transform(images, index, epoch=5), together)


@pytest.mark.parametrize("name", RANDOM)
def test_augmentation_changes_with_seed_epoch_and_index(name):
    transform, images = TRANSFORMS[name]
    index = torch.arange(6)
    base = transform(images, index, 0)
    other_seed = type(transform)(**{**transform.__dict__, "seed": 1}) if name.startswith("ink") else None
    for other in (transform(images, index, 1), transform(images, index + 6, 0)):
        assert ((other - base).flatten(1).abs().amax(1) > 1e-3).all()
    if other_seed is not None:
        assert ((other_seed(images, index, 0) - base).flatten(1).abs().amax(1) > 1e-3).all()


def test_photo_augmentation_changes_with_the_seed():
    index = torch.arange(6)
    one, two = (PhotoTrain(size=16, resize=20, seed=seed)(photos(6), index, 0) for seed in (0, 1))
    assert ((one - two).flatten(1).abs().amax(1) > 1e-3).all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_global_generator_is_left_as_it_was(name):
    transform, images = TRANSFORMS[name]
    before = torch.get_rng_state()
    transform(images, torch.arange(6), 0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_pickle_and_compare(name):
    transform, images = TRANSFORMS[name]
    transform(images, torch.arange(6), 0)  # whatever is built on first use must pickle too
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform
    assert torch.equal(copy(images, torch.arange(6), 3), transform(images, torch.arange(6), 3))


def test_ink_train_without_any_amount_is_ink_eval():
    still = InkTrain(degrees=0, scale=0, shear=0, shift=0, elastic=0, stroke=0)
    torch.testing.assert_close(still(ink(4), torch.arange(4), 0), InkEval()(ink(4), torch.arange(4), 0))


def test_ink_eval_only_divides_by_255_and_resizes_what_is_of_another_size():
    images = ink(3)
    assert torch.equal(InkEval()(images, torch.arange(3), 0), torch.stack(images).float() / 255)
    mixed = [*ink(1, size=56), *ink(2)]
    result = InkEval()(mixed, torch.arange(3), 0)
    assert result.shape == (3, 1, 28, 28) and torch.equal(result[1], ink(2)[0].float() / 255)


def test_ink_stays_within_0_and_1_and_is_never_wiped_out():
    images = ink(64)
    result = InkTrain()(images, torch.arange(64), 0)
    assert result.min() >= 0 and result.max() <= 1
    assert (result.flatten(1).sum(1) > 0.2 * torch.stack(images).flatten(1).sum(1) / 255).all()


def test_stroke_changes_the_stated_share_of_images_in_both_directions():
    images = ink(1) * 2000
    result = InkTrain(degrees=0, scale=0, shear=0, shift=0, elastic=0, stroke=0.5)(images, torch.arange(2000), 0)
    change = result.flatten(1).sum(1) - images[0].sum() / 255
    assert abs((change > 1e-3).float().mean() - 0.25) < 0.05
    assert abs((change < -1e-3).float().mean() - 0.25) < 0.05


def test_warp_moves_a_point_where_its_parameters_say():
    image = torch.zeros(1, 1, 33, 33)
    image[0, 0, 16, 24] = 1  # right of the centre by 8

    def moved(**change: torch.Tensor) -> tuple[int, int]:
        still = {"angle": torch.zeros(1), "scale": torch.ones(1), "shear": torch.zeros(1), "shift": torch.zeros(1, 2)}
        peak = int(warp(image, 33, **{**still, **change}).argmax())
        return divmod(peak, 33)

    assert moved() == (16, 24)
    assert moved(shift=torch.tensor([[2 / 33, -3 / 33]])) == (13, 26)
    assert moved(scale=torch.tensor([1.5])) == (16, 28)
    quarter = moved(angle=torch.tensor([math.pi / 2]))
    assert quarter in ((8, 16), (24, 16))
    assert moved(field=torch.full((1, 2, 4, 4), 4 / 33)) == (12, 20)  # a displacement says where to look
    image.zero_()[0, 0, 8, 16] = 1  # above the centre: a shear moves it sideways only
    row, column = moved(shear=torch.tensor([0.5]))
    assert row == 8 and abs(column - 16) == 4


def test_the_elastic_field_passes_through_its_corner_control_points():
    from rankgrad_workbench.datasets.transforms import _bicubic_basis

    basis = _bicubic_basis(4, 28)
    torch.testing.assert_close(basis.sum(1), torch.ones(28))
    torch.testing.assert_close(basis[[0, -1]], torch.eye(4)[[0, -1]])


def test_photo_eval_is_resize_centre_crop_and_normalisation():
    grey = torch.full((3, 30, 60), 128, dtype=torch.uint8)
    result = PhotoEval(size=8, resize=10)([grey], torch.tensor([0]), 0)
    expected = (128 / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(result, expected.view(1, 3, 1, 1).expand(1, 3, 8, 8))
    left_half = torch.zeros(3, 20, 40, dtype=torch.uint8)
    left_half[:, :, :20] = 255
    crop = PhotoEval(size=16, resize=20, mean=(0, 0, 0), std=(1, 1, 1))([left_half], torch.tensor([0]), 0)
    assert crop[0, 0, :, 0].min() > 0.9 and crop[0, 0, :, -1].max() < 0.1


def test_photo_train_flips_the_stated_share():
    image = torch.zeros(3, 20, 20, dtype=torch.uint8)
    image[:, :, :10] = 255
    transform = PhotoTrain(size=8, resize=None, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.3)
    result = transform([image] * 400, torch.arange(400), 0)
    flipped = (result[:, 0, 4, 0] < result[:, 0, 4, 7]).float().mean()
    assert abs(flipped - 0.3) < 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InkTrain(size=0), "size is in pixels"),
        (lambda: InkTrain(shear=-0.1), "shear is the largest amount"),
        (lambda: InkTrain(scale=1.0), "scale must be < 1"),
        (lambda: InkTrain(stroke=1.5), "stroke is a fraction"),
        (lambda: InkEval(size=2.5), "size is in pixels"),
        (lambda: PhotoTrain(scale=(0.0, 1.0)), "scale must be"),
        (lambda: PhotoTrain(ratio=(2.0, 1.0)), "ratio > 0; got"),
        (lambda: PhotoTrain(flip=2), "flip is a probability"),
        (lambda: PhotoTrain(color_jitter=-1), "color_jitter"),
        (lambda: PhotoTrain(mean=(0.5,)), "mean and std need one number per channel"),
        (lambda: PhotoEval(size=300), "resize must be >= size"),
        (lambda: PhotoEval(size=224, resize=(256, 200)), "resize must be >= size"),
        (lambda: PhotoEval(resize=(256, 256, 256)), "or height and width"),
        (lambda: PhotoEval(resize=256.0), "resize is in pixels"),
        (lambda: PhotoEval(size=8, resize=10**9), r"resize is in pixels, an integer in 1 \.\. 8192"),
        (lambda: InkEval(size=10**5), "size is in pixels"),
        (lambda: PhotoTrain(resize=(256, 0)), "resize is in pixels"),
        (lambda: PhotoTrain(resize=None, scale=None), "scale=None crops 224 pixels: .*got None"),
        (lambda: PhotoTrain(resize=(256, 200), scale=None), "must be at least that; got"),
    ],
)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_images_are_named():
    with pytest.raises(TypeError, match="uint8"):
        InkEval()([torch.zeros(1, 28, 28)], torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="empty batch"):
        InkTrain()([], torch.zeros(0, dtype=torch.long), 0)
    with pytest.raises(TypeError, match=r"mean and std \(3\); got torch.uint8 \(1, "):
        PhotoEval(size=8, resize=8)(ink(1), torch.tensor([0]), 0)


def table() -> Table:
    return Table(
        "ink",
        torch.arange(6).repeat_interleave(4),
        tuple("abcdef"),
        ("train",) * 24,
        tuple(map(str, range(24))),
        channels=1,
        images=torch.stack(ink(24)),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_the_epoch_of_the_sampler_reaches_persistent_workers(workers):
    data, transform = ImageSet(table()), InkTrain()
    sampler = MPerClassBatchSampler(data.table.label, 3, 2, seed=4)
    loader = DataLoader(
        data,
        batch_sampler=sampler,
        collate_fn=Collate(transform),
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    for epoch in (0, 1, 2):
        sampler.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(sampler)
        for (images, labels, index), rows in zip(batches, sampler.batches(epoch), strict=True):
            assert index.tolist() == rows
            assert torch.equal(labels, data.table.label[rows])
            torch.testing.assert_close(images, transform([data.table.images[i] for i in rows], index, epoch))


def photo_table() -> Table:
    g = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (24, 3, 30, 40), dtype=torch.uint8, generator=g)
    names = tuple(map(str, range(24)))
    return Table("photos", torch.arange(6).repeat_interleave(4), tuple("abcdef"), ("train",) * 24, names, 3, images)


@pytest.mark.parametrize("transform", [PhotoTrain(size=16, resize=20, scale=None), PhotoEval(size=16, resize=20)])
@pytest.mark.parametrize("turned", [False, True])
def test_only_the_middle_of_a_strip_is_resized_to_a_shorter_side(transform, turned):
    strip = torch.randint(0, 256, (3, 1, 20_000), dtype=torch.uint8)
    middle = strip[:, :, 10_000 - 32 : 10_000 + 32]
    if turned:
        strip, middle = strip.mT, middle.mT
    assert _no_strip(strip).equal(middle) and _no_strip(middle).equal(middle)
    assert transform([strip], torch.tensor([0]), 0).equal(transform([middle], torch.tensor([0]), 0))


@pytest.mark.parametrize("transform", [PhotoTrain(size=16, resize=20, color_jitter=0.3), PhotoEval(size=16, resize=20)])
def test_photo_batches_of_workers_are_those_of_one_process_bit_by_bit(transform):
    data = ImageSet(photo_table())
    batches = []
    for workers in (0, 2):
        loader = DataLoader(data, batch_size=7, collate_fn=Collate(transform), num_workers=workers)
        batches.append([images for images, _, _ in loader])
    for one, other in zip(*batches, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("channels", [1, 3])
def test_photo_pixels_are_those_of_torchvision_image_by_image(channels):
    from torchvision.transforms import v2

    mean, std = ((0.4,), (0.3,)) if channels == 1 else ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    images = [image[:channels] for image in photos(5)]
    rows_of_pixels = [
        image.permute(1, 2, 0).contiguous().permute(2, 0, 1) for image in images
    ]  # as decoders leave them
    scaled = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(mean), list(std))]

    train = PhotoTrain(size=16, resize=20, color_jitter=0.4 if channels == 3 else 0, mean=mean, std=std, seed=3)
    jitter = [v2.ColorJitter(0.4, 0.4, 0.4, 0.1)] if channels == 3 else []
    crop = v2.RandomResizedCrop(16, scale=(0.16, 1.0), ratio=(3 / 4, 4 / 3), antialias=True)
    steps = v2.Compose([v2.Resize(20, antialias=True), crop, v2.RandomHorizontalFlip(0.5), *jitter, *scaled])
    index = torch.tensor([3, 1, 4, 1, 5])
    expected = []
    with torch.random.fork_rng(devices=[]):
        for image, key in zip(images, _keys(3, 2, index).tolist(), strict=True):
            torch.manual_seed(key - 2**64 if key >= 2**63 else key)
            expected.append(steps(image))
    for given in (images, rows_of_pixels):
        torch.testing.assert_close(train(given, index, 2), torch.stack(expected), rtol=0, atol=2e-6)

    center = v2.Compose([v2.Resize(20, antialias=True), v2.CenterCrop(16), *scaled])
    expected = [center(image) for image in images]
    for given in (images, rows_of_pixels):
        found = PhotoEval(size=16, resize=20, mean=mean, std=std)(given, index, 0)
        torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=2e-6)


def test_a_plain_crop_is_a_window_of_the_resized_image_and_every_place_is_tried():
    ramp = torch.arange(20, dtype=torch.uint8).expand(1, 20, 20)  # columns hold their number: no resizing to undo
    rows = torch.stack([ramp.transpose(1, 2)[0], ramp[0], ramp[0]])
    cut = PhotoTrain(size=16, resize=(20, 20), scale=None, flip=0, mean=(0.0,) * 3, std=(1.0,) * 3)
    images = (255 * cut([rows] * 200, torch.arange(200), 0)).round()
    top, left = images[:, 0, 0, 0], images[:, 1, 0, 0]
    torch.testing.assert_close(images[:, 0], top.view(-1, 1, 1) + torch.arange(16.0).view(-1, 1).expand(200, 16, 16))
    torch.testing.assert_close(images[:, 1], left.view(-1, 1, 1) + torch.arange(16.0).expand(200, 16, 16))
    assert {(int(t), int(x)) for t, x in zip(top, left, strict=True)} == {(t, x) for t in range(5) for x in range(5)}


def test_resizing_to_height_and_width_keeps_no_aspect_and_leaves_nothing_out():
    wide = torch.zeros(3, 30, 60, dtype=torch.uint8)
    wide[:, :, :15] = 255  # the first quarter
    plain = {"size": 16, "mean": (0.0,) * 3, "std": (1.0,) * 3}
    for transform in (
        PhotoEval(resize=(16, 16), **plain),
        PhotoTrain(resize=[16, 16], scale=None, flip=0, **plain),  # YAML has lists
    ):
        left, right = transform([wide], torch.tensor([0]), 0)[0].split([4, 12], dim=2)
        assert left.mean() > 0.9 and right.mean() < 0.05
    assert PhotoEval(resize=16, **plain)([wide], torch.tensor([0]), 0).mean() < 0.05  # cropped away with aspect kept


@pytest.mark.parametrize("workers", [0, 2])
def test_set_epoch_of_collate_reaches_persistent_workers_for_samplers_without_an_epoch(workers):
    data, transform = ImageSet(table()), InkTrain()
    collate = Collate(transform)
    loader = DataLoader(data, batch_size=8, collate_fn=collate, num_workers=workers, persistent_workers=workers > 0)
    for epoch in (0, 3):
        collate.set_epoch(epoch)
        for images, _, index in loader:
            expected = transform([data.table.images[i] for i in index], index, epoch)
            torch.testing.assert_close(images, expected)
