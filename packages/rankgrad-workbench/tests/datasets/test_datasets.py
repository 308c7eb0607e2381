from __future__ import annotations

import errno
import hashlib
import os
import pickle
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader

from rankgrad.batches.samplers import EpochList
from rankgrad_workbench import settings as config
from rankgrad_workbench.datasets import (
    DATASETS,
    ImageSet,
    Table,
    contact_sheet,
    find_images,
    glyphs,
    load_folder,
    load_glyphs,
    read_image,
)
from rankgrad_workbench.datasets import base as datasets_base
from rankgrad_workbench.datasets import cache as datasets_cache
from rankgrad_workbench.datasets.folder import EMPTY, read_folder
from rankgrad_workbench.datasets.images import look
from rankgrad_workbench.datasets.transforms import Collate, PhotoEval, PhotoTrain
from rankgrad_workbench.files import temporary

DATA = os.environ.get("RANKGRAD_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="RANKGRAD_DATA is not set to the folder that holds bccd/")


def small_table(**change) -> Table:
    columns = {
        "name": "small",
        "label": torch.tensor([0, 0, 1, 2, 2, 2]),
        "class_names": ("a", "b", "c"),
        "split": ("train", "train", "train", "test", "test", "val"),
        "names": tuple("uvwxyz"),
        "channels": 1,
        "images": torch.arange(6 * 4, dtype=torch.uint8).view(6, 1, 2, 2),
    }
    return Table(**{**columns, **change})


def save(path: Path, size: tuple[int, int] = (12, 10), mode: str = "RGB", **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.RandomState(len(path.name)).randint(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path, **options)
    return path


def folder_of(root: Path, classes: dict[str, int]) -> Path:
    for name, count in classes.items():
        for i in range(count):
            save(root / name / f"{i}.png")
    return root


# --- Table -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"label": torch.zeros(6)}, ValueError, r"label must be torch.int64 \[6\]; got torch.float32"),
        ({"label": torch.tensor([0, 0, 1, 2, 2, 3])}, ValueError, "label must be 0 .. 2, one of its 3 names"),
        ({"label": torch.tensor([0, 0, 1])}, ValueError, "split needs one entry per image"),
        ({"split": ("train",) * 5 + ("dev",)}, ValueError, r"split must be one of .*; got \['dev'\]"),
        ({"names": ("u",)}, ValueError, r"names needs one entry per image \(6\); got 1"),
        ({"class_names": ("a", "b", "a")}, ValueError, r"all be different; got \['a'\]"),
        ({"channels": 2}, ValueError, "channels must be 1"),
        ({"channels": 3}, ValueError, r"images must be torch.uint8 \[6, 3, any, any\]"),
        ({"images": torch.zeros(6, 1, 2, 2)}, ValueError, "images must be torch.uint8"),
        ({"images": None}, ValueError, "either in memory"),
        ({"paths": (Path("x"),) * 6}, ValueError, "either in memory"),
        ({"images": None, "paths": (Path("x"),) * 5}, ValueError, "paths needs one entry per image"),
        (
            {"super_label": torch.zeros(5, dtype=torch.long), "super_names": ("s",)},
            ValueError,
            r"super_label must be torch.int64 \[6\]",
        ),
        ({"super_label": torch.ones(6, dtype=torch.long), "super_names": ("s",)}, ValueError, "super_label must be"),
    ],
)
def test_columns_that_do_not_fit_are_named(change, error, message):
    with pytest.raises(error, match=message):
        small_table(**change)


def test_select_takes_the_rows_of_a_split_and_keeps_the_numbering():
    table = small_table(super_label=torch.tensor([0, 0, 0, 1, 1, 1]), super_names=("s", "t"))
    test = table.select("test")
    assert table.splits == ("train", "val", "test") and test.splits == ("test",)
    assert test.label.tolist() == [2, 2] and test.names == ("x", "y") and test.class_names == ("a", "b", "c")
    assert torch.equal(test.images, table.images[3:5]) and test.super_label.tolist() == [1, 1]
    with pytest.raises(ValueError, match="split 'val'; it has test"):
        test.select("val")


def test_identical_files_in_two_splits_or_two_classes_are_named(tmp_path, monkeypatch):
    noise = np.random.RandomState(0)
    for name in ("train/a", "train/b", "test/c", "test/d"):
        for number in range(3):
            pixels = noise.randint(0, 256, (8, 8, 3), dtype=np.uint8)
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.bmp")  # all of the same size
    assert load_folder(tmp_path).remarks == ()
    shutil.copy(tmp_path / "train/a/0.bmp", tmp_path / "test/c/copy.bmp")
    shutil.copy(tmp_path / "train/a/1.bmp", tmp_path / "train/b/copy.bmp")
    shutil.copy(tmp_path / "test/d/2.bmp", tmp_path / "test/d/copy.bmp")
    lines = load_folder(tmp_path).summary().splitlines()
    assert lines[-3:] == [
        "3 image(s) are copies of another image (identical files)",
        "  in two splits: 1 (train/a/0.bmp = test/c/copy.bmp)",
        "  in two classes: 2 (train/a/0.bmp = test/c/copy.bmp, train/a/1.bmp = train/b/copy.bmp)",
    ]
    monkeypatch.setattr("rankgrad_workbench.datasets.identical.sha256_of", None)  # no file is opened
    assert load_folder(tmp_path, check=False).remarks == ()


def test_summary_counts_splits_and_names_what_a_user_should_know():
    table = small_table(
        super_label=torch.tensor([0, 0, 0, 1, 1, 1]),
        super_names=("s", "t"),
        skipped=(*((f"{i}.png", "empty file") for i in range(12)), ("a/\x1b[2J.pdf", "a document")),
        understood="photos/ is understood",
    )
    assert table.summary().splitlines() == [
        "photos/ is understood",
        "small: 6 images, 3 classes (grey, 2 x 2)",
        "split  images  classes  images/class  super-labels",
        "train       3        2           1-2             1",
        "val         1        1             1             1",
        "test        2        1             2             1",
        "train: 1 class has one image only (b): nothing in train can match it",
        "val: 1 class has one image only (c): nothing in val can match it",
        "1 class is in both val and test: not a test on unseen classes",
        "skipped 13 files:",
        "  empty file, 12 times: 0.png, 1.png, 2.png, 3.png, 4.png, ...",
        "  a document, 1 times: a/\\x1b[2J.pdf",
    ]


# --- ImageSet --------------------------------------------------------------------------------------------------------


def test_an_item_is_image_label_and_row():
    data = ImageSet(small_table().select("test"))
    image, label, index = data[1]
    assert len(data) == 2 and (label, index) == (2, 1) and torch.equal(image, small_table().images[4])
    with pytest.raises(IndexError):
        data[2]
    assert [item[2] for item in data.__getitems__([1, 0])] == [1, 0]
    assert data.__getitems__(EpochList([1, 0], epoch=4)).epoch == 4


def test_files_are_read_in_the_wanted_mode(tmp_path):
    path = save(tmp_path / "a.png", size=(5, 7))
    pillow = Image.open(path)
    assert np.array_equal(read_image(path, 3).permute(1, 2, 0), np.asarray(pillow))
    assert np.array_equal(read_image(path, 1)[0], np.asarray(pillow.convert("L")))
    for mode in ("L", "P", "1", "CMYK"):
        other = save(tmp_path / f"{mode}.tif", mode=mode)
        assert read_image(other, 3).shape == (3, 10, 12) and read_image(other, 1).shape == (1, 10, 12)


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    left_white = np.zeros((16, 32), dtype=np.uint8)
    left_white[:, :16] = 255
    Image.fromarray(left_white).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    image = read_image(tmp_path / "turned.jpg", 1)
    assert image.shape == (1, 32, 16)
    assert image[0, :14].min() > 200 and image[0, 18:].max() < 55  # left became top


def test_transparent_parts_become_white(tmp_path):
    drawing = np.zeros((4, 4, 4), dtype=np.uint8)  # black, transparent
    drawing[1:3, 1:3, 3] = 255  # black, opaque
    Image.fromarray(drawing).save(tmp_path / "drawing.png")
    image = read_image(tmp_path / "drawing.png", 1)[0]
    assert (image[1:3, 1:3] == 0).all() and image.sum() == 12 * 255


def test_sixteen_bit_images_keep_their_upper_eight_bits(tmp_path):
    values = np.array([[0, 256], [32768, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png", 1).tolist() == [[[0, 1], [128, 255]]]
    Image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "float.tif")
    assert look(tmp_path / "float.tif")[0] == "32-bit pixels have no known range; store the image with 8 or 16 bits"


def test_a_file_that_breaks_after_the_check_is_named(tmp_path):
    table = load_folder(folder_of(tmp_path, {"a": 2, "b": 2, "c": 2, "d": 2}))
    broken = table.paths[3]
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(OSError, match=f"cannot read image {broken}"):
        ImageSet(table)[3]
    broken.unlink()
    with pytest.raises(OSError, match=f"cannot read image {broken}: No such file or directory") as caught:
        list(DataLoader(ImageSet(table), batch_size=4, collate_fn=Collate(PhotoEval(8, 8))))
    # a DataLoader's worker hands the error on as type(error)(text)
    assert "text" in str(type(caught.value)("text"))


# --- decoded images, kept --------------------------------------------------------------------------------------------


@pytest.fixture
def photo_folder(tmp_path) -> Path:
    """Two classes of files of several sizes, formats and kinds."""
    root = tmp_path / "photos"
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        save(root / name / "wide.jpg", size=(90, 61), quality=90)
        save(root / name / "tall.png", size=(33, 50))
        save(root / name / "turned.jpg", size=(70, 45), exif=exif)
        save(root / name / "grey.png", size=(24, 24), mode="L")
        save(root / name / "clear.png", size=(40, 31), mode="RGBA")
        save(root / name / "small.bmp", size=(9, 12))
    return root


def load_photos(root: Path, **options) -> Table:
    return load_folder(root, test_fraction=0.0, cache_dir=root.parent / "cache", **options)


def items(table: Table) -> list[torch.Tensor]:
    return [image for image, _, _ in map(ImageSet(table).__getitem__, range(len(table)))]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.fixture
def no_decoding(monkeypatch):
    def refuse(path, *rest):
        raise AssertionError(f"{path} was decoded")

    return lambda: monkeypatch.setattr(datasets_base, "read_image", refuse)


@pytest.mark.parametrize("where", ["ram", "disk"])
@pytest.mark.parametrize("shorter_side", [None, 20])
@pytest.mark.parametrize("channels", [1, 3])
def test_cached_items_are_those_of_the_files_bit_by_bit(where, shorter_side, channels, photo_folder, no_decoding):
    options = {"shorter_side": shorter_side, "channels": channels}
    expected = items(load_photos(photo_folder, **options))
    table = load_photos(photo_folder, cache=where, **options)
    no_decoding()
    found = items(table)
    assert same(found, expected)
    assert {image.shape[0] for image in found} == {channels}
    assert max(min(image.shape[1:]) for image in found) == (20 if shorter_side else 61)
    rows = [7, 0, 3]
    assert same(items(table.take(rows)), [expected[row] for row in rows])
    found[0].zero_()  # an item is one's own
    assert same(items(table), expected)


def test_an_image_is_made_smaller_as_the_transforms_do_it_and_never_larger(photo_folder):
    from torchvision.transforms import v2

    whole, small = items(load_photos(photo_folder)), items(load_photos(photo_folder, shorter_side=20))
    for one, other in zip(whole, small, strict=True):
        assert torch.equal(other, v2.Resize(20, antialias=True)(one) if min(one.shape[1:]) > 20 else one)


@pytest.mark.parametrize("where", ["none", "ram", "disk"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shorter_side", [None, 16])  # 16: what the transform resizes to
def test_training_batches_are_the_same_with_and_without_a_cache(where, workers, shorter_side, photo_folder):
    transform = PhotoTrain(size=14, resize=16, color_jitter=0.3)

    def batches(table: Table, workers: int) -> list[torch.Tensor]:
        loader = DataLoader(ImageSet(table), batch_size=5, collate_fn=Collate(transform), num_workers=workers)
        return [images for images, _, _ in loader]

    expected = batches(load_photos(photo_folder), 0)
    assert same(batches(load_photos(photo_folder, cache=where, shorter_side=shorter_side), workers), expected)


@pytest.fixture
def reads(monkeypatch) -> list[Path]:
    """The files that were decoded since it was cleared."""
    found: list[Path] = []
    monkeypatch.setattr(datasets_base, "read_image", lambda *given: (found.append(given[0]), read_image(*given))[1])
    return found


def test_a_file_of_images_is_used_again_without_decoding_until_something_changes(photo_folder, reads, monkeypatch):
    def decoded(**options) -> int:
        reads.clear()
        table = load_photos(photo_folder, cache="disk", **options)
        count = len(reads)
        assert same(items(table), items(load_photos(photo_folder, **options)))
        return count

    assert [decoded(), decoded()] == [12, 0]
    assert [decoded(shorter_side=20), decoded(shorter_side=20), decoded()] == [12, 0, 0]  # a file for each setting
    one = photo_folder / "a" / "tall.png"
    status = one.stat()
    Image.open(one).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(one)
    assert [decoded(), decoded()] == [12, 0]
    os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert [decoded(), decoded()] == [12, 0]
    save(photo_folder / "b" / "another.png")
    assert [decoded(), decoded()] == [13, 0]
    monkeypatch.setattr("PIL.__version__", "another")
    assert [decoded(), decoded()] == [13, 0]
    # what is out of date is replaced, not left behind
    assert len(list((photo_folder.parent / "cache").glob("*.pixels"))) == 2


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".pixels", lambda content: content[:-1]),
        (".pixels", lambda content: content + b" "),
        (".pixels", lambda content: b""),
        (".json", lambda content: content[:20]),
        (".json", lambda content: b"[1]"),
        (".json", lambda content: bytes(len(content))),
    ],
)
def test_a_damaged_file_of_images_is_announced_and_built_again(suffix, damage, photo_folder):
    expected = items(load_photos(photo_folder, cache="disk", shorter_side=20))
    (file,) = (photo_folder.parent / "cache").glob(f"*{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(datasets_cache.CacheWarning, match="is damaged .* It is built again"):
        table = load_photos(photo_folder, cache="disk", shorter_side=20)
    assert same(items(table), expected)
    assert same(items(load_photos(photo_folder, cache="disk", shorter_side=20)), expected)  # and is good from now on


@pytest.mark.parametrize("suffix", [".pixels", ".json"])
def test_a_pipe_in_place_of_a_file_of_images_is_not_waited_for(suffix, photo_folder):
    expected = items(load_photos(photo_folder, cache="disk", shorter_side=20))
    (file,) = (photo_folder.parent / "cache").glob(f"*{suffix}")
    file.unlink()
    os.mkfifo(file)
    with pytest.warns(datasets_cache.CacheWarning, match=r"is damaged .* It is built again"):
        table = load_photos(photo_folder, cache="disk", shorter_side=20)
    assert same(items(table), expected) and file.is_file()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_interrupted_while_it_is_built_leaves_nothing(error, photo_folder, monkeypatch):
    calls = []

    def read(path, *rest):
        calls.append(path)
        if len(calls) == 5:
            raise error
        return read_image(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(datasets_base, "read_image", read)
        with pytest.raises(error):
            load_photos(photo_folder, cache="disk")
    assert [path.suffix for path in (photo_folder.parent / "cache").iterdir()] == [".lock"]
    assert same(items(load_photos(photo_folder, cache="disk")), items(load_photos(photo_folder)))


@pytest.mark.parametrize("moment", ["read 1", "read 7", "before the rename", "after the rename"])
def test_a_process_that_is_killed_while_it_builds_does_no_harm_and_leaves_nothing_for_long(moment, photo_folder):
    expected = items(load_photos(photo_folder))
    child = os.fork()
    if child == 0:
        die = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        reads, replace = [], os.replace

        def read(path, *rest):
            reads.append(path)
            if moment == f"read {len(reads)}":
                die()
            return read_image(path, *rest)

        def rename(*paths, **at):
            if moment == "before the rename":
                die()
            replace(*paths, **at)
            die()

        datasets_base.read_image, os.replace = read, rename
        load_photos(photo_folder, cache="disk")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    kept = photo_folder.parent / "cache"
    left = [path for path in kept.iterdir() if path.suffix == ".tmp"]
    assert len(left) == (moment != "after the rename")
    other = kept / temporary("another.pixels")  # of a process that builds another file just now
    other.touch()
    assert same(items(load_photos(photo_folder, cache="disk")), expected)
    assert sorted(path.suffix for path in kept.iterdir() if path != other) == [".json", ".lock", ".pixels"]


def test_of_two_that_want_the_same_file_one_builds_and_the_other_waits(photo_folder, reads):
    tables: list[Table] = []
    both = [threading.Thread(target=lambda: tables.append(load_photos(photo_folder, cache="disk"))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(reads) == 12 and same(*map(items, tables))


def test_too_little_memory_or_disk_is_said_after_the_first_images(photo_folder, monkeypatch):
    monkeypatch.setattr(datasets_cache, "TRIED", 6)
    monkeypatch.setattr(datasets_cache, "free_memory", lambda: 60_000)
    with pytest.raises(ValueError, match=r"12 images .*0\.0733 MB.*0\.054 MB .*cache"):
        load_photos(photo_folder, cache="ram")
    monkeypatch.setattr(datasets_cache, "free_memory", lambda: 80_000)  # a tenth stays free
    with pytest.raises(ValueError, match="0.072 MB are free"):
        load_photos(photo_folder, cache="ram")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=70_000))
    with pytest.raises(ValueError, match=r"0\.0733 MB.*0\.07 MB .*cache_dir"):
        load_photos(photo_folder, cache="disk")
    assert [path.suffix for path in (photo_folder.parent / "cache").iterdir()] == [".lock"]


def test_a_table_with_its_file_of_images_is_small_to_send_to_another_process(photo_folder):
    table = load_photos(photo_folder, cache="disk")
    expected = items(table)
    sent = pickle.dumps(table)
    assert len(sent) < 6000 < table.pixels.nbytes
    assert same(items(pickle.loads(sent)), expected)


def test_the_summary_says_what_is_kept_where(photo_folder):
    first = [load_photos(photo_folder, cache=where).summary().splitlines()[1] for where in ("none", "ram", "disk")]
    assert first[0].endswith("(RGB, files)")
    assert first[1].endswith("(RGB, files kept in memory: 0 MB)") and first[2].endswith("kept on disk: 0 MB)")


def test_a_broken_file_is_named_while_the_cache_is_built(photo_folder):
    broken = photo_folder / "a" / "wide.jpg"
    broken.write_bytes(broken.read_bytes()[:700])
    for where in ("ram", "disk"):
        with pytest.raises(OSError, match=f"cannot read image {broken}: image file is truncated"):
            load_photos(photo_folder, check=False, cache=where)
        assert len(load_photos(photo_folder, cache=where)) == 11  # checked, it is left out


def test_images_in_memory_need_no_cache():
    assert small_table().cached("ram").pixels is None and small_table().cached("disk").pixels is None


def test_wrong_settings_of_a_cache_are_named(photo_folder):
    with pytest.raises(ValueError, match="cache .* got 'memory'"):
        load_photos(photo_folder, cache="memory")
    with pytest.raises(ValueError, match="shorter_side.*>= 1.*got 0"):
        load_photos(photo_folder, shorter_side=0)
    table = load_photos(photo_folder, cache="ram")
    with pytest.raises(ValueError, match=r"pixels needs one entry per image \(12\); got 3"):
        replace(table, pixels=table.pixels.take([0, 1, 2]))


def test_settings_of_a_run_reach_the_cache(photo_folder):
    from rankgrad_workbench import settings as config

    settings = ["data=folder", f"data.root={photo_folder}", "data.size=14", "data.load.test_fraction=0"]
    table = config.make(config.compose(settings).data.load, slot="data")
    assert table.pixels is None and table.shorter_side == 16
    cached = ["data.cache=disk", f"data.cache_dir={photo_folder.parent / 'mine'}"]
    table = config.make(config.compose([*settings, *cached]).data.load, slot="data")
    assert table.pixels.memory.parent == photo_folder.parent / "mine"


@pytest.fixture(scope="module")
def photographs() -> list[Path]:
    return sorted(Path(DATA or "", "bccd", "JPEGImages").glob("*.jpg"))[:9]


@needs_data
def test_batches_of_real_photographs_are_the_same_with_and_without_a_cache(photographs, tmp_path):
    for row, path in enumerate(photographs):
        link = tmp_path / "photos" / "ab"[row % 2] / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    whole = items(load_photos(tmp_path / "photos"))
    index = torch.arange(len(whole))
    expected = PhotoTrain()(whole, index, 1)
    for options in ({"cache": "ram"}, {"cache": "disk", "shorter_side": 256}, {"shorter_side": 256}):
        found = items(load_photos(tmp_path / "photos", **options))
        assert "shorter_side" in options or same(found, whole)
        assert torch.equal(PhotoTrain()(found, index, 1), expected)


@needs_data
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_draft_of_a_large_photograph_differs_from_all_of_it_by_less_than_its_compression(mode, photographs, tmp_path):
    large = Image.new(mode, (3 * 640, 3 * 480))
    for i, path in enumerate(photographs):
        large.paste(Image.open(path), (i % 3 * 640, i // 3 * 480))
    large.save(tmp_path / "large.jpg", quality=90)
    channels = len(mode)
    read = [read_image(tmp_path / "large.jpg", channels, 256, draft=draft).float() for draft in (False, True)]
    difference = (read[0] - read[1]).abs()
    assert 0.05 < difference.mean() < 0.3 and difference.max() <= 6
    compressed = read_image(photographs[0], channels, 256, draft=True)  # 480 < 2 * 256: nothing to gain
    assert torch.equal(compressed, read_image(photographs[0], channels, 256))


# --- contact sheet ---------------------------------------------------------------------------------------------------


def test_the_contact_sheet_shows_the_first_images_of_the_chosen_classes(tmp_path, monkeypatch):
    def full_disk(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    white = small_table(images=torch.full((6, 1, 8, 8), 255, dtype=torch.uint8))
    white.images[0] = 100
    path = contact_sheet(white, tmp_path / "new" / "sheet.png", per_class=2, cell=16)
    sheet = np.asarray(Image.open(path).convert("L"))
    assert sheet.shape[0] == 3 * 18
    grey = np.argwhere(sheet == 100)
    grey = grey[grey[:, 1] >= sheet.shape[1] - 36]  # titles have some grey too
    assert len(grey) == 16 * 16 and grey[:, 0].min() == 0 and grey[:, 1].max() - grey[:, 1].min() == 15
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("rankgrad_workbench.files._sync", full_disk)
        with pytest.raises(OSError, match="No space left on device") as error:
            contact_sheet(white, path)
    assert error.value.filename == str(path) and path.read_bytes() == before


# --- glyphs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def glyph_table() -> Table:
    return load_glyphs()


def test_glyphs_are_703_characters_in_12_faces_with_the_published_split(glyph_table):
    assert glyph_table.images.shape == (8436, 1, 28, 28) and len(glyph_table.class_names) == 703
    assert (torch.bincount(glyph_table.label) == 12).all()
    scripts = {"train": {"Latin": 410, "Cyrillic": 76}, "val": {"Cyrillic": 39}}
    scripts["test"] = {"Greek": 69, "Armenian": 66, "Georgian": 43}
    for split, expected in scripts.items():
        rows = glyph_table.select(split)
        assert len(rows) == 12 * sum(expected.values())
        per_script = torch.bincount(rows.super_label, minlength=5)
        assert dict(zip(glyph_table.super_names, per_script.tolist(), strict=True)) == {
            script: 12 * expected.get(script, 0) for script in glyph_table.super_names
        }
    classes = [set(glyph_table.select(split).label.tolist()) for split in ("train", "val", "test")]
    assert sum(map(len, classes)) == len(set.union(*classes)) == 703
    assert glyph_table.names[0] == "A DejaVuSans" and glyph_table.class_names[0] == "A"
    assert len(set(glyph_table.names)) == 8436


def test_who_changes_the_pixels_of_glyphs_changes_his_own():
    mine = load_glyphs()
    mine.images.zero_()
    assert load_glyphs().images.any()


def test_glyphs_are_the_same_bits_again_and_change_with_the_seed(glyph_table):
    state = torch.get_rng_state()
    glyphs._deformed.cache_clear()
    assert torch.equal(load_glyphs(seed=0, hard=0.6).images, glyph_table.images)
    assert torch.equal(torch.get_rng_state(), state)
    clean = glyphs.clean_letters()[:24]
    one, other = (glyphs._deform(clean, seed, 0.6).float() for seed in (0, 1))
    assert ((one - other).flatten(1).abs().mean(1) > 5).all()


def test_clean_glyphs_have_the_published_hash():
    content = glyphs.clean_letters().numpy().tobytes()
    assert hashlib.sha256(content).hexdigest() == "14aa1e1c83215b0a7604ed36238f6b1f7fac15fffe0dbd9324298719894c1855"


def test_a_clean_letter_is_what_a_font_rasteriser_draws(glyph_table):
    from matplotlib import get_data_path
    from PIL import ImageFont

    font = ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSerif-BoldItalic.ttf")), 400)
    clean = glyphs.clean_letters()
    for character in "ABgh\u0436\u0567\u10d3\u03c6":  # with holes, counters, curves
        mine = clean[glyph_table.names.index(f"{character} DejaVuSerif-BoldItalic")].float() / 255
        mask, _ = font.getmask2(character, mode="L")
        drawn = torch.from_numpy(np.array(mask, dtype=np.float32).reshape(mask.size[::-1])) / 255
        rows, columns = ((drawn.amax(axis) > 0).nonzero().squeeze(1) for axis in (1, 0))
        drawn = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        # the letter in the middle of a frame of which its longest side takes 62 %, then 56 x 56 averages
        side = round(max(drawn.shape) / 0.62)
        top, left = ((side - n) // 2 for n in drawn.shape)
        framed = F.pad(drawn, (left, side - left - drawn.shape[1], top, side - top - drawn.shape[0]))
        theirs = F.interpolate(framed[None, None], (56, 56), mode="area")[0, 0]
        overlap = torch.minimum(mine, theirs).sum() / torch.maximum(mine, theirs).sum()
        assert overlap > 0.9, (character, float(overlap))


def test_hard_orders_the_difficulty_of_glyphs(glyph_table):
    def nearest_is_right(images: torch.Tensor, label: torch.Tensor) -> float:
        pixels = images.flatten(1).float()
        scores = F.normalize(pixels - pixels.mean(1, keepdim=True))
        scores = (scores @ scores.T).fill_diagonal_(-1)
        return float((label[scores.argmax(1)] == label).float().mean())

    test = glyph_table.select("test")
    assert 0.30 < nearest_is_right(test.images, test.label) < 0.40
    few = test.label.unique()[::3]
    clean = glyphs.clean_letters().view(-1, 12, 56, 56)[few].flatten(0, 1)
    label = few.repeat_interleave(12)
    easy, middle, difficult = (nearest_is_right(glyphs._deform(clean, 0, hard), label) for hard in (0.0, 0.6, 1.0))
    assert easy > 0.8 and easy > middle + 0.2 and middle > difficult + 0.2


@pytest.mark.parametrize("arguments", [{"hard": 1.5}, {"hard": -0.1}, {"seed": -1}, {"seed": 2**32}])
def test_glyph_settings_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} .*got"):
        load_glyphs(**arguments)


# --- folder ----------------------------------------------------------------------------------------------------------


def test_sub_folders_are_classes_divided_as_whole_classes(tmp_path):
    root = folder_of(tmp_path / "set", {f"class{i}": 2 + i % 3 for i in range(10)})
    table = load_folder(root, test_fraction=0.3, val_fraction=0.2)
    assert table.name == "set" and table.class_names == tuple(f"class{i}" for i in range(10)) and table.channels == 3
    classes = {split: set(table.select(split).label.tolist()) for split in table.splits}
    assert {split: len(found) for split, found in classes.items()} == {"train": 5, "val": 2, "test": 3}
    assert len(set.union(*classes.values())) == 10
    for label, path, name in zip(table.label.tolist(), table.paths, table.names, strict=True):
        assert path.parent.name == table.class_names[label] and name == f"{path.parent.name}/{path.name}"
    again = load_folder(root, test_fraction=0.3, val_fraction=0.2)
    assert again.names == table.names and again.split == table.split
    assert load_folder(root, test_fraction=0.3, val_fraction=0.2, seed=1).split != table.split


def test_to_train_on_all_images_both_settings_are_named(tmp_path, capsys):
    from rankgrad_workbench import cli

    root = folder_of(tmp_path / "set", {"a": 3, "b": 3, "c": 3})
    with pytest.raises(ValueError, match=r"test_fraction=0 val_fraction=0, in a command with evaluation\.split=train"):
        load_folder(root)
    settings = ["data=folder", f"data.root={root}", "data.load.test_fraction=0", f"out={tmp_path / 'run'}"]
    assert cli.main(["train", *settings]) == 2
    assert "it has train. To train on all images, and evaluate on them too: evaluation.split=train" in (
        capsys.readouterr().err
    )


def test_a_new_class_moves_hardly_any_other_class(tmp_path):
    root = folder_of(tmp_path, {f"class{i}": 2 for i in range(12)})
    before = dict(zip(*(lambda t: (t.names, t.split))(load_folder(root)), strict=True))
    folder_of(tmp_path, {"another": 1})
    after = dict(zip(*(lambda t: (t.names, t.split))(load_folder(root)), strict=True))
    assert sum(before[name] != after[name] for name in before) <= 1


def test_a_train_test_division_is_taken_and_shared_classes_are_announced(tmp_path):
    folder_of(tmp_path / "train", {"a": 2, "b": 2})
    folder_of(tmp_path / "test", {"b": 3, "c": 2})
    table = load_folder(tmp_path)
    assert table.class_names == ("a", "b", "c")
    assert table.split == ("train",) * 4 + ("test",) * 5
    assert table.label.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert "1 class is in both train and test: not a test on unseen classes" in table.summary()
    folder_of(tmp_path / "val", {"d": 1, "e": 1})
    save(tmp_path / "stray.png")
    save(tmp_path / "val" / "stray.png")
    table = load_folder(tmp_path)
    assert table.splits == ("train", "val", "test")
    assert [path for path, _ in table.skipped] == [str(tmp_path / "stray.png"), str(tmp_path / "val" / "stray.png")]


def test_folders_called_train_among_others_are_classes(tmp_path):
    root = folder_of(tmp_path, {"train": 2, "bus": 1, "car": 1, "test": 1})
    assert load_folder(root).class_names == ("bus", "car", "test", "train")


def test_half_a_division_is_an_error(tmp_path):
    folder_of(tmp_path / "train", {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="train/ and no test/"):
        load_folder(tmp_path)
    folder_of(tmp_path / "Validation", {"c": 1, "d": 1})
    with pytest.raises(ValueError, match="train/, Validation/ and no test/"):
        load_folder(tmp_path)


@pytest.mark.parametrize(
    ("train", "test", "val"),
    [
        ("train", "test", "val"),
        ("Train", "TEST", "Validation"),
        ("training", "testing", "valid"),
        ("TRAIN", "Test", "dev"),
    ],
)
def test_a_division_is_known_by_its_names_in_any_capitals(tmp_path, train, test, val):
    for name, classes in ((train, "ab"), (test, "cd"), (val, "ef")):
        folder_of(tmp_path / name, dict.fromkeys(classes, 2))
    for i in range(3):
        save(tmp_path / "unlabelled" / f"{i}.png")
    table = load_folder(tmp_path)
    assert table.class_names == tuple("abcdef") and len(table) == 12
    assert [len(table.select(split)) for split in ("train", "val", "test")] == [4, 4, 4]
    said = ", ".join(
        f"{name}/ = {split} (2 classes)" for name, split in ((train, "train"), (val, "val"), (test, "test"))
    )
    first = table.summary().splitlines()[0]
    assert first == f"{tmp_path} is understood as a division: {said}, unlabelled/ left out (3 files)"


def test_the_folder_that_stands_in_the_way_of_a_division_is_named(tmp_path):
    folder_of(tmp_path / "Train", {"a": 2, "b": 2})
    folder_of(tmp_path / "Test", {"c": 2, "d": 2})
    save(tmp_path / "results" / "plot.png")
    with pytest.raises(ValueError, match="Test/, Train/ .*beside results/"):
        load_folder(tmp_path)
    (tmp_path / "results").rename(tmp_path / "training")
    with pytest.raises(ValueError, match="Test/, Train/, training/"):
        load_folder(tmp_path)


def test_a_division_with_too_few_classes_says_how_it_was_understood(tmp_path):
    folder_of(tmp_path / "train", {"a": 2, "b": 2})
    folder_of(tmp_path / "test", {"c": 2})
    with pytest.raises(ValueError, match=r"train/ = train \(2 classes\), test/ = test"):
        load_folder(tmp_path)


def test_a_class_folder_without_an_image_is_named(tmp_path):
    root = folder_of(tmp_path, {"a": 2, "b": 2, "c": 2, "d": 2})
    (root / "empty").mkdir()
    (root / "texts").mkdir()
    (root / "texts" / "notes.txt").write_text("a caption")
    table = load_folder(root)
    assert table.class_names == ("a", "b", "c", "d")
    assert {Path(path).name: reason for path, reason in table.skipped} == dict.fromkeys(("empty", "texts"), EMPTY)
    assert "empty" in table.summary() and "texts" in table.summary()


def test_a_class_folder_that_cannot_be_read_is_listed_once(tmp_path, monkeypatch):
    home = folder_of(tmp_path, {"a": 2, "b": 2})
    (home / "locked").mkdir()
    scan = os.scandir

    def refuse(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert read_folder(home).skipped == ((str(home / "locked"), "Permission denied"),)


def test_broken_files_are_listed_with_their_reason_and_the_rest_is_used(tmp_path):
    root = folder_of(tmp_path, {"a": 3, "b": 3, "c": 1, "d": 2, "all broken": 1})
    jpeg = save(root / "a" / "truncated.jpg", size=(200, 200))
    jpeg.write_bytes(jpeg.read_bytes()[:-2000])
    png = save(root / "a" / "truncated.png", size=(200, 200))
    png.write_bytes(png.read_bytes()[:-2000])
    (root / "b" / "empty.png").touch()
    (root / "b" / "text.JPG").write_text("not an image")
    (root / "b" / "dangling.png").symlink_to(root / "nowhere.png")
    (root / "all broken" / "0.png").write_bytes(b"\x89PNG")
    (root / "b" / "notes.txt").write_text("a caption: of no interest")
    (root / "b" / "model.obj").write_text("no image")
    (root / "b" / "photo.HEIC").write_bytes(b"\0\0\0\x18ftypheic and no more")
    (root / "b" / "plan.pdf").write_bytes(b"%PDF-1.7")
    (root / "b" / "logo.svg").write_text("<svg/>")
    (root / "b" / ".hidden.png").touch()
    (root / "stray.png").touch()
    table = load_folder(root)
    assert table.class_names == ("a", "b", "c", "d") and len(table) == 9
    skipped = {Path(path).relative_to(root).as_posix(): reason for path, reason in table.skipped}
    assert skipped.pop("a/truncated.jpg").startswith("image file is truncated")
    assert set(skipped) == {
        "a/truncated.png",
        "all broken/0.png",
        "b/dangling.png",
        "b/empty.png",
        "b/text.JPG",
        "b/photo.HEIC",
        "b/model.obj",
        "b/plan.pdf",
        "b/logo.svg",
        "stray.png",
    }
    assert skipped["b/model.obj"] == "not an image by its name"
    assert "export its pages" in skipped["b/plan.pdf"] and "render it to PNG" in skipped["b/logo.svg"]
    assert skipped["b/empty.png"] == "empty file"
    assert "broken link" in skipped["b/dangling.png"]
    assert skipped["b/text.JPG"] == "not an image of a known format"
    assert skipped["stray.png"] == "lies beside the class folders"
    assert "skipped 11 files:" in table.summary() and "b/plan.pdf" in table.summary()
    assert (
        len(load_folder(root, check=False)) == len(table) + 6
    )  # all that have the name of an image, but the stray one and the link
    for image, _, _ in (ImageSet(table)[i] for i in range(len(table))):
        assert image.shape == (3, 10, 12)


def test_a_class_with_one_image_is_kept_and_counted(tmp_path):
    root = folder_of(tmp_path / "train", {"a": 1, "b": 2}).parent
    folder_of(root / "test", {"c": 2, "d": 2})
    assert "train: 1 class has one image only (a): nothing in train can match it" in load_folder(root).summary()


def test_links_nested_folders_and_unicode_names_are_followed(tmp_path):
    outside = folder_of(tmp_path / "outside", {"真": 2})
    root = folder_of(tmp_path / "set", {"b/deep/er": 2, "é": 1, "c d": 1})
    (root / "linked").symlink_to(outside / "真")
    (root / "b" / "loop").symlink_to(root / "b")
    (root / ".cache").mkdir()
    table = load_folder(root)
    assert table.class_names == ("b", "c d", "linked", "é")
    assert table.names == ("b/deep/er/0.png", "b/deep/er/1.png", "c d/0.png", "linked/0.png", "linked/1.png", "é/0.png")


@pytest.mark.parametrize(
    ("classes", "arguments", "message"),
    [
        ({}, {}, "has no sub-folders"),
        ({"a": 0, "b": 0}, {}, "has no readable images in its class folders"),
        ({"a": 5}, {}, r"images of 1 class\(es\); ranking needs at least two"),
        ({"a": 5, "b": 5, "c": 5}, {}, r"3 class\(es\) in all, and train would get 1; .*train/ and test/ with every"),
        ({"a": 5, "b": 5, "c": 5, "d": 5}, {"val_fraction": 0.2}, "and train would get 1; .*val_fraction"),
        ({"a": 5, "b": 5, "c": 5, "d": 5}, {"test_fraction": 0.1}, "test would get 0; .*change test_fraction"),
        ({f"class{i}": 1 for i in range(8)}, {}, "each of the 8 classes of .* has one image only"),
        ({"a": 1, "b": 1}, {"test_fraction": 0.8, "val_fraction": 0.3}, "test_fraction and val_fraction .*; got"),
        ({"a": 1, "b": 1}, {"test_fraction": -0.1}, "test_fraction and val_fraction .*; got"),
    ],
)
def test_folders_that_cannot_be_used_say_why(tmp_path, classes, arguments, message):
    for name, count in classes.items():
        (tmp_path / name).mkdir()
        folder_of(tmp_path, {name: count})
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path, **arguments)


@pytest.mark.parametrize("classes", [{"a": 5}, {"a": 5, "b": 5}, {f"class{i}": 1 for i in range(8)}])
def test_files_that_are_no_images_are_named_where_too_little_is_left(tmp_path, classes):
    folder_of(tmp_path, classes)
    for number in range(3):
        (tmp_path / next(iter(classes)) / f"{number}.heic").write_text("no image")
    with pytest.raises(ValueError, match=r"skipped 3 files:\n(.*\n)*.*/2.heic: not an image"):
        load_folder(tmp_path)


def test_a_root_that_is_no_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; root is a folder"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match="is a file"):
        load_folder(save(tmp_path / "a.png"))


def test_a_division_with_too_few_classes_says_which_split(tmp_path):
    folder_of(tmp_path / "train", {"a": 2, "b": 2})
    folder_of(tmp_path / "test", {"c": 2})
    with pytest.raises(ValueError, match=r"test has readable images of 1 class\(es\);"):
        load_folder(tmp_path)


def test_all_classes_can_be_test_or_train(tmp_path):
    root = folder_of(tmp_path, {"a": 2, "b": 2})
    assert load_folder(root, test_fraction=1.0).splits == ("test",)
    assert load_folder(root, test_fraction=0.0).splits == ("train",)


def test_find_images_needs_no_classes(tmp_path):
    folder_of(tmp_path, {"a": 1, "b/c": 1})
    save(tmp_path / "top.png")
    (tmp_path / "broken.png").touch()
    paths, skipped = find_images(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == ["top.png", "a/0.png", "b/c/0.png"]
    assert skipped == ((str(tmp_path / "broken.png"), "empty file"),)
    with pytest.raises(NotADirectoryError, match="need a folder of images"):
        find_images(tmp_path / "top.png")


def test_every_loader_is_in_the_table_under_its_name():
    assert {name: loader.__name__ for name, loader in DATASETS.items()} == {name: f"load_{name}" for name in DATASETS}
    assert sorted(DATASETS) == config.options("data")
    assert replace(small_table(), name="x").name == "x"
