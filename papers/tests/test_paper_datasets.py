"""The data sets of the papers, read from small copies of their official layout."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from dataset_trees import TREES, Tree, write_list
from marks import slow_unless
from omegaconf import OmegaConf
from PIL import Image

from rankgrad_papers.datasets import (
    DATASETS,
    OFFICIAL,
    load_cub,
    load_inaturalist,
    load_inshop,
    load_sop,
    load_vehicleid,
    vehicleid,
)
from rankgrad_papers.datasets import official as of_official
from rankgrad_papers.datasets.official import inspect, missing_files
from rankgrad_papers.experiments.merged import load_merged
from rankgrad_workbench import cli
from rankgrad_workbench.datasets import CountWarning, ImageSet, Inspection, trials
from rankgrad_workbench.settings import compose, make

NAMES = list(TREES)
SETTLED = json.loads(Path(__file__).with_name("data_configs.json").read_text(encoding="utf-8"))
HAND_MADE = "ignore:.* does not have the published counts:rankgrad_workbench.datasets.CountWarning"


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Callable[[str], Tree]:
    """Each tree, made once and not to be changed."""
    made: dict[str, Tree] = {}

    def tree(name: str) -> Tree:
        if name not in made:
            made[name] = TREES[name](tmp_path_factory.mktemp(f"a folder for {name}"))
        return made[name]

    return tree


@pytest.fixture
def damaged(originals, tmp_path) -> Callable[[str], Tree]:
    """A copy of a tree that may be changed."""

    def tree(name: str) -> Tree:
        whole = originals(name)
        root = tmp_path / "copy"
        shutil.copytree(whole.root, root)
        moved = {part: root / getattr(whole, part).relative_to(whole.root) for part in ("home", "images")}
        return whole._replace(root=root, **moved)

    return tree


def official(name: str, tree: Tree):
    """What would be official if the tree was."""
    return replace(OFFICIAL[name], counts=tree.counts, super_labels=tree.super_labels)


def problems(found: Inspection) -> list[str]:
    return [finding.text for finding in found.findings if finding.status == "wrong"]


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_unless({"cub", "omniglot"}, SETTLED))
def test_a_data_set_is_composed_to_the_same_settings_as_ever(name):
    def composed(*settings: str) -> dict[str, object]:
        data = OmegaConf.to_container(compose([f"data={name}", "data.root=DIR", *settings]).data, resolve=True)
        return json.loads(json.dumps(data))

    changed = [] if name == "omniglot" else ["data.size=96", "data.cache=disk", "data.cache_dir=KEPT"]
    assert composed() == SETTLED[name][""]
    assert composed("seed=3", *changed) == SETTLED[name]["changed"]


# --- what loaders give -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(HAND_MADE)
@pytest.mark.parametrize("name", NAMES)
def test_a_loader_gives_the_rows_of_the_official_lists(originals, name):
    tree = originals(name)
    table = DATASETS[name](tree.root)
    assert len(table) == len(tree.rows) and table.channels == 3 and table.skipped == ()
    for row, expected in enumerate(tree.rows):
        assert table.names[row] == expected.file
        assert table.paths[row] == tree.images / expected.file and table.paths[row].is_file()
        assert table.class_names[table.label[row]] == expected.name
        assert table.split[row] == expected.split
        if expected.super_name is not None:
            assert table.super_names[table.super_label[row]] == expected.super_name
        if expected.role is not None:
            assert table.role[row] == expected.role
        if name == "cub_cropped":
            assert table.box_of(row) == expected.box
    assert (table.box is not None) == (name == "cub_cropped")
    assert (table.role is not None) == (name == "inshop")
    assert (table.super_label is not None) == (name in ("sop", "inshop", "inaturalist"))
    assert table.protocol == ("query_gallery" if name == "inshop" else "leave_one_out")


@pytest.mark.filterwarnings(HAND_MADE)
@pytest.mark.parametrize("name", NAMES)
def test_the_folder_that_was_unpacked_is_found_from_outside_and_from_inside(originals, name):
    tree = originals(name)
    assert DATASETS[name](tree.home).paths == DATASETS[name](str(tree.root)).paths


@pytest.mark.filterwarnings(HAND_MADE)
@pytest.mark.parametrize("name", NAMES)
def test_a_config_makes_the_loader_and_transforms_that_take_its_images(originals, name):
    config = compose([f"data={name}", f"data.root={originals(name).root}", "data.size=8"])
    table = make(config.data.load, slot="data")
    assert config.data.name == name and table.shorter_side == config.data.resize == 9
    images = [ImageSet(table)[row][0] for row in range(3)]
    assert all(min(image.shape[1:]) <= 9 for image in images)
    for transform in (
        make(config.data.train_transform, slot="transform"),
        make(config.data.eval_transform, slot="transform"),
    ):
        assert transform(images, torch.arange(3), epoch=0).shape == (3, 3, 8, 8)


@pytest.mark.parametrize("name", NAMES)
def test_other_counts_than_the_published_are_announced_once_and_can_be_accepted(originals, name):
    root = originals(name).root
    with pytest.warns(CountWarning, match="published counts") as caught:
        table = DATASETS[name](root)
    assert len(caught) == 1 and caught[0].filename == __file__
    unchecked = DATASETS[name](root, check=False)
    assert unchecked.names == table.names
    # without a warning it is still noted, also in a table that is made from this one
    assert str(caught[0].message) == table.off_counts == unchecked.off_counts == unchecked.select("test").off_counts
    assert load_merged(DATASETS[name], root=root, check=False).off_counts == table.off_counts


@pytest.mark.parametrize("which", ["TRAIN TESTS", "PAPER_TRAIN PAPER_TESTS"])
def test_both_published_counts_of_vehicleid_are_accepted_in_training(originals, monkeypatch, which):
    tree, (train, tests) = originals("vehicleid"), which.split()
    monkeypatch.setattr(vehicleid, train, tree.counts["train"])
    monkeypatch.setattr(vehicleid, tests, {size: tree.counts[f"test {size}"] for size in ("small", "medium", "large")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = load_vehicleid(tree.root, test="medium")
    assert table.off_counts == "" and "papers count other images of this data set: train" in table.summary()
    monkeypatch.setattr(vehicleid, train, (8, 3))
    with pytest.warns(CountWarning, match=r"train: \(7, 3\) instead of"):
        load_vehicleid(tree.root, test="medium")


def test_published_counts_add_up_to_the_published_totals():
    totals = {"cub": (11788, 200), "cub_cropped": (11788, 200), "sop": (120053, 22634), "inaturalist": (461939, 8142)}
    for name, total in totals.items():
        assert tuple(map(sum, zip(*OFFICIAL[name].counts.values(), strict=True))) == total
    counts = OFFICIAL["inshop"].counts
    assert sum(images for images, _ in counts.values()) == 52712
    assert counts["train"][1] + counts["query"][1] == 7982 and counts["query"][1] == counts["gallery"][1]
    counts = OFFICIAL["vehicleid"].counts
    assert [counts[f"test {size}"][1] for size in ("small", "medium", "large")] == [800, 1600, 2400]


@pytest.mark.filterwarnings(HAND_MADE)
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_image_stops_a_loader_that_checks_and_no_other(damaged, name):
    tree = damaged(name)
    gone = tree.images / tree.rows[1].file
    gone.unlink()
    with pytest.raises(FileNotFoundError, match="1 of .*missing: .*rankgrad datasets check") as error:
        DATASETS[name](tree.root)
    assert str(gone) in str(error.value)
    assert len(DATASETS[name](tree.root, check=False)) == len(tree.rows)


@pytest.mark.filterwarnings(HAND_MADE)
@pytest.mark.parametrize("name", NAMES)
def test_files_are_cached_and_made_smaller_as_for_any_folder(originals, name, tmp_path):
    plain = ImageSet(DATASETS[name](originals(name).root, shorter_side=7))
    kept = ImageSet(DATASETS[name](originals(name).root, shorter_side=7, cache="disk", cache_dir=tmp_path))
    assert all(torch.equal(plain[row][0], kept[row][0]) for row in range(len(plain)))
    assert min(plain[0][0].shape[1:]) == 7 and len(list(tmp_path.glob("*.pixels"))) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_the_data_set_says_what_was_looked_for_and_where_to_get_it(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for .*\.txt.* (Get|Ask)"):
        DATASETS[name](tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder .*: root .*(Get|Ask)"):
        DATASETS[name](tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):
        DATASETS[name](tmp_path / "file")


def test_an_unknown_way_of_reading_is_refused(originals):
    with pytest.raises(TypeError, match="short_side"):
        load_sop(originals("sop").root, short_side=3)


# --- boxes -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(HAND_MADE)
def test_cropped_birds_are_the_whole_ones_cut(originals):
    tree = originals("cub")
    whole, cropped = (ImageSet(load_cub(tree.root, cropped=cropped)) for cropped in (False, True))
    for row, expected in enumerate(tree.rows):
        left, top, right, bottom = (max(0, int(edge)) for edge in expected.box)
        assert torch.equal(cropped[row][0], whole[row][0][:, top:bottom, left:right])
    assert "cropped to boxes" in cropped.table.summary() and "cropped" not in whole.table.summary()


@pytest.mark.filterwarnings(HAND_MADE)
def test_boxes_and_roles_follow_their_rows(originals):
    cub, inshop = (DATASETS[name](originals(name).root) for name in ("cub_cropped", "inshop"))
    assert torch.equal(cub.take([4, 1]).box, cub.box[[4, 1]])
    assert inshop.take([6, 0]).role == (inshop.role[6], inshop.role[0])
    assert inshop.select("train").role == ("",) * 5


# --- each data set's own ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(HAND_MADE)
def test_the_layout_of_published_code_is_read_too(damaged):
    tree = damaged("sop")
    before = load_sop(tree.root)
    for kind in list(tree.home.glob("*_final")):
        (tree.home / "images").mkdir(exist_ok=True)
        kind.rename(tree.home / "images" / kind.name)
    (tree.home / "Info_Files").mkdir()
    for path in list(tree.home.glob("Ebay_*.txt")):
        path.rename(tree.home / "Info_Files" / path.name)
    after = load_sop(tree.root)
    assert after.names == before.names and torch.equal(after.label, before.label)
    assert after.paths[0] == tree.home / "images" / before.names[0]
    assert inspect(official("sop", tree), tree.root).wrong == 0


@pytest.mark.filterwarnings(HAND_MADE)
def test_lists_may_lie_beside_the_images(damaged):
    tree = damaged("inaturalist")
    for path in (tree.home / "Inat_dataset_splits").iterdir():
        path.rename(tree.home / path.name)
    assert load_inaturalist(tree.root).names == tuple(row.file for row in tree.rows)


@pytest.mark.filterwarnings(HAND_MADE)
def test_in_shop_may_be_unpacked_flat(damaged):
    tree = damaged("inshop")
    (tree.home / "Img" / "img").rename(tree.home / "img")
    (tree.home / "Eval" / "list_eval_partition.txt").rename(tree.home / "list_eval_partition.txt")
    (tree.home / "Eval").rmdir()
    table = load_inshop(tree.home)
    assert table.paths[0] == tree.home / tree.rows[0].file
    assert inspect(official("inshop", tree), tree.home).wrong == 0


def test_in_shop_names_may_have_spaces(damaged):
    tree = damaged("inshop")
    path = tree.home / "Eval" / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("MEN/Denim/", "MEN/Blue Denim/"))
    table = load_inshop(tree.root, check=False)
    assert "MEN/Blue Denim" in table.super_names and "img/MEN/Blue Denim/id_00000080/01_1_front.jpg" in table.names


@pytest.mark.filterwarnings(HAND_MADE)
def test_vehicle_tests_are_three_lists_with_the_same_training_set(originals):
    tree = originals("vehicleid")
    for size in ("small", "medium", "large"):
        table = load_vehicleid(tree.root, test=size)
        rows = table.select("test")
        assert table.name == f"vehicleid_{size}" and len(table.select("train")) == 7
        assert (len(rows), len(torch.unique(rows.label))) == tree.counts[f"test {size}"]
    with pytest.raises(ValueError, match="small, medium, large; got 'tiny'"):
        load_vehicleid(tree.root, test="tiny")
    with pytest.raises(ValueError, match="'one_gallery'; got 'query_gallery'"):
        load_vehicleid(tree.root, protocol="query_gallery")


@pytest.mark.filterwarnings(HAND_MADE)
def test_vehicles_that_were_not_labelled_are_a_super_label_of_their_own(originals):
    root = originals("vehicleid").root
    table = load_vehicleid(root, super_labels="model")
    found = {table.class_names[c]: table.super_names[s] for c, s in zip(table.label, table.super_label, strict=True)}
    assert found == {
        "vehicle 3": "model 12",
        "vehicle 26000": "model 249",
        "vehicle 4": "model 12",
        "vehicle 77": "not labelled",
        "vehicle 26001": "not labelled",
    }
    assert load_vehicleid(root, super_labels="color").super_names == ("color 0", "color 6", "not labelled")
    with pytest.raises(ValueError, match="'model', 'color' or None"):
        load_vehicleid(root, super_labels="make")


# --- lists that are not as they should be ----------------------------------------------------------------------------


PARTITION = "Eval/list_eval_partition.txt"
SPLITS = "Inat_dataset_splits/Inaturalist_test_set1.txt"


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("cub", "images.txt", lambda t: t.replace("3 001", "three 001"), "images.txt, line 3: needed image id, path"),
        ("cub", "images.txt", lambda t: t.replace("\n3 001", "\n2 001"), "images.txt names image 2 twice"),
        ("cub", "images.txt", lambda t: t.replace("1 001", "99 001", 1), "1 are only in the first and 1 only in the"),
        ("cub", "images.txt", lambda t: "", "images.txt lists nothing"),
        ("cub", "classes.txt", lambda t: t.replace("100 100", "99 100"), r"classes.txt does not name: \[100\]"),
        ("cub_cropped", "bounding_boxes.txt", lambda t: t.replace(" 8.0", " 0.0"), "image 2 has no width or height"),
        ("cub_cropped", "bounding_boxes.txt", lambda t: t[:-9], "line 15: needed image id, x, y, width, height"),
        ("sop", "Ebay_test.txt", lambda t: t.partition("\n")[2], "Ebay_test.txt, line 1: needed the header 'image_id"),
        ("sop", "Ebay_test.txt", lambda t: t.replace(" 5 fan", " 4 fan"), "'coffee_maker'.*'fan'"),
        ("sop", "Ebay_test.txt", lambda t: t.replace(" fan", "fan", 1), "Ebay_test.txt, line 4: needed image_id"),
        ("inshop", PARTITION, lambda t: t.rstrip().rpartition("\n")[0], "lists 12 images, but it lists 11"),
        ("inshop", PARTITION, lambda t: t.partition("\n")[2], "needed the number of listed images; got 'image_name"),
        ("inshop", PARTITION, lambda t: t.replace("id_", "item_"), "line 3: needed image_name"),
        ("inshop", PARTITION, lambda t: t.replace("query", "probe"), "train, query or gallery; got 'probe'"),
        ("inshop", PARTITION, lambda t: t.replace("img/WOMEN/Dresses/id_00000002/", ""), "image_name must be img/SEX/"),
        ("inaturalist", SPLITS, lambda t: "a.jpg\n", "line 1: needed FOLDER/SUPER/CATEGORY/FILE; got 'a.jpg'"),
        ("vehicleid", "train_test_split/train_list.txt", lambda t: t + "7\n", "train_list.txt, line 8: needed image"),
    ],
)
def test_a_damaged_list_names_its_line_and_what_was_needed(damaged, name, file, change, message):
    tree = damaged(name)
    path = tree.home / file
    before = path.read_bytes().decode()
    assert change(before) != before
    path.write_bytes(change(before).encode())
    with pytest.raises(ValueError, match=message):
        DATASETS[name](tree.root)
    found = inspect(official(name, tree), tree.root)
    assert found.wrong == 1 and path.name.partition(".")[0] in str(found)
    assert any("get the file again" in finding.todo for finding in found.findings)


def test_a_list_that_is_no_text_says_so(damaged):
    tree = damaged("sop")
    (tree.home / "Ebay_train.txt").write_bytes(b"PK\x03\x04\xff\xff")
    with pytest.raises(ValueError, match="Ebay_train.txt is not UTF-8 text"):
        load_sop(tree.root)


def test_a_mark_at_the_beginning_and_empty_lines_mean_nothing(damaged):
    tree = damaged("sop")
    path = tree.home / "Ebay_train.txt"
    path.write_text("\ufeff" + path.read_text().replace("\n", "\n\n") + "  \n", encoding="utf-8")
    assert len(load_sop(tree.root, check=False)) == len(tree.rows)


# --- check -----------------------------------------------------------------------------------------------------------


def test_identical_images_of_train_and_test_are_noted_when_images_are_read(damaged):
    tree = damaged("sop")
    table = load_sop(tree.root, check=False)
    one, other = (tree.home / table.select(split).names[0] for split in ("train", "test"))
    other.write_bytes(one.read_bytes())
    assert "in two splits: 1 (" in str(inspect(official("sop", tree), tree.root, images=True))
    assert "two splits" not in str(inspect(official("sop", tree), tree.root))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("images", [False, True])
def test_a_whole_data_set_is_complete(originals, name, images):
    tree = originals(name)
    found = inspect(official(name, tree), tree.root, images=images)
    assert found.wrong == 0 and str(found).endswith("complete")
    for part, (count, classes) in tree.counts.items():
        assert f"ok     {part}: {count} images of {classes} classes" in str(found)
    listed = {row.file for row in tree.rows} if name != "vehicleid" else set(map(str, tree.images.iterdir()))
    assert f"all {len(listed)} listed images exist" in str(found)
    assert ("no image was opened; --images" in str(found)) != images
    assert (f"all {len(listed)} images can be read" in str(found)) == images


@pytest.mark.parametrize("name", NAMES)
def test_a_check_opens_no_image_unless_asked(originals, name, monkeypatch):
    tree = originals(name)
    monkeypatch.setattr(of_official, "look", lambda path: pytest.fail(f"opened {path}"))
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("opened an image"))
    assert inspect(official(name, tree), tree.root).wrong == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_hand_made_copy_does_not_have_the_published_counts(originals, name):
    found = inspect(OFFICIAL[name], originals(name).root)
    assert len(problems(found)) == len(OFFICIAL[name].counts) + (OFFICIAL[name].super_labels is not None)
    for part, (images, classes) in OFFICIAL[name].counts.items():
        assert any(
            text.startswith(f"{part}: ") and f"should be {images} of {classes}" in text for text in problems(found)
        )


@pytest.mark.parametrize("name", NAMES)
def test_missing_images_are_counted_and_some_are_named(damaged, name):
    tree = damaged(name)
    files = sorted({row.file for row in tree.rows})[:6]
    for file in files:
        (tree.images / file).unlink()
    found = inspect(official(name, tree), tree.root)
    (text,) = problems(found)
    assert text.startswith("6 of ") and "listed images are missing" in text and text.endswith(", ...")
    assert sum(file in text for file in files) == 5


@pytest.mark.parametrize("name", NAMES)
def test_each_missing_file_of_the_layout_is_named_with_what_to_do(damaged, name):
    tree = damaged(name)
    for need in OFFICIAL[name].needs:
        (path,) = (tree.home / path for path in need.paths if (tree.home / path).exists())
        path.rename(tree.root / "aside")
        found = inspect(official(name, tree), tree.root)
        assert found.wrong == need.required  # it is said once
        (finding,) = (f for f in found.findings if f.status != "ok" and "--images" not in f.text)
        assert finding.status == ("wrong" if need.required else "note")
        assert " or ".join(need.paths) in finding.text and need.todo in finding.todo + finding.text
        (tree.root / "aside").rename(path)
    assert inspect(official(name, tree), tree.root).wrong == 0


def test_an_archive_that_was_not_unpacked_is_pointed_out(tmp_path):
    (tmp_path / "CUB_200_2011.tgz").touch()
    found = inspect(OFFICIAL["cub"], tmp_path)
    assert found.wrong == 1 and found.findings[0].todo == "tar xzf CUB_200_2011.tgz, then check again"


def test_an_archive_that_lies_in_the_folder_is_pointed_out_when_its_images_are_not_there(damaged):
    tree = damaged("inshop")
    shutil.rmtree(tree.home / "Img" / "img")
    (tree.home / "Img" / "img.zip").touch()
    found = inspect(official("inshop", tree), tree.home)
    assert "note   Img/img.zip was downloaded\n         -> unzip img.zip where it lies" in str(found)


def test_the_papers_numbers_of_vehicleid_are_noted_and_not_refused(originals):
    tree = originals("vehicleid")
    published = replace(
        OFFICIAL["vehicleid"],
        counts={**tree.counts, "train": (113346, 13164)},
        elsewhere={"the papers": {"train": tree.counts["train"]}},
    )
    found = inspect(published, tree.root)
    assert found.wrong == 0
    (note,) = (finding for finding in found.findings if "the papers" in finding.text)
    assert note.status == "note" and "113346 of 13164" in note.todo
    assert OFFICIAL["vehicleid"].elsewhere["the papers"]["test large"] == (20038, 2400)


def test_images_listed_twice_and_classes_in_both_splits_are_found(damaged):
    tree = damaged("sop")
    path = tree.home / "Ebay_test.txt"
    last = path.read_text().splitlines()[-1]
    write_list(path, [*path.read_text().splitlines(), last, f"99 1 1 {tree.rows[0].file}"])
    found = inspect(replace(official("sop", tree), counts={"train": (6, 3), "test": (6, 3)}), tree.root)
    assert problems(found) == [
        "test: 1 images are listed more than once",
        "1 classes are in both train and test, such as bicycle 1: not a test on new classes",
    ]


def test_a_class_of_several_super_labels_is_noted(damaged):
    tree = damaged("inshop")
    path = tree.home / "Eval" / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("img/MEN/Denim/id_00000080/01", "img/WOMEN/Dresses/id_00000080/01"))
    found = inspect(official("inshop", tree), tree.root)
    assert "note   train: 1 classes have images of several super-labels" in str(found)


def test_a_query_without_an_answer_is_found(damaged):
    tree = damaged("inshop")
    path = tree.home / "Eval" / "list_eval_partition.txt"
    text = path.read_text().replace("id_00000007  gallery", "id_00000007  query")
    path.write_text(text)
    counts = {"train": (5, 2), "query": (4, 2), "gallery": (3, 1)}
    found = inspect(replace(official("inshop", tree), counts=counts), tree.root)
    assert problems(found) == ["1 query classes have no gallery image, such as id_00000007"]


@pytest.mark.parametrize("name", NAMES)
def test_images_that_cannot_be_read_are_named_when_asked(damaged, name):
    tree = damaged(name)
    for row in tree.rows[:7]:
        (tree.images / row.file).write_bytes((tree.images / row.file).read_bytes()[:200])
    (tree.images / tree.rows[7].file).unlink()
    found = inspect(official(name, tree), tree.root, images=True)
    assert inspect(official(name, tree), tree.root).wrong == 1  # the one that is not there
    texts = problems(found)
    assert texts[0].startswith("1 of ") and len(texts) == 1 + 5 + 1
    broken = {str((tree.images / row.file).relative_to(tree.home)) for row in tree.rows[:7]}
    assert {text.partition(": ")[0] for text in texts[1:6]} < broken
    assert texts[6] == "... and 2 more images that cannot be used"


def test_a_box_outside_of_its_image_is_found_when_asked(damaged):
    tree = damaged("cub_cropped")
    path = tree.home / "bounding_boxes.txt"
    path.write_text(path.read_text().replace("2 2.0 3.0", "2 60.0 27.0"))
    assert inspect(official("cub_cropped", tree), tree.root).wrong == 0
    (text,) = problems(inspect(official("cub_cropped", tree), tree.root, images=True))
    assert tree.rows[1].file in text and "is not inside the image of 24 x 16 pixels" in text
    assert inspect(official("cub", tree), tree.root, images=True).wrong == 0


# --- commands --------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_was_found_and_fails_when_something_is_wrong(damaged, monkeypatch, capsys):
    tree = damaged("cub")
    monkeypatch.setattr(load_cub, "inspect", partial(inspect, official("cub", tree)))
    assert cli.main(["datasets", "check", "cub", "--root", str(tree.root)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "complete"
    assert cli.main(["datasets", "check", "cub", "--root", str(tree.root), "--images"]) == 0
    assert "all 15 images can be read" in capsys.readouterr().out
    (tree.images / tree.rows[3].file).unlink()
    assert cli.main(["datasets", "check", "cub", "--root", str(tree.root)]) == 2
    shown = capsys.readouterr()
    assert f"wrong  1 of 15 listed images are missing: images/{tree.rows[3].file}" in shown.out
    assert (
        shown.out.splitlines()[-1] == "1 problem"
        and "rankgrad: this differs from the published data set in 1 point(s)" in shown.err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "unknown data set ''. Known: "),
        (["check", "cub", "sop", "--root", "x"], "unknown data set 'cub sop'"),
        (["check", "cup", "--root", "x"], "unknown data set 'cup'; did you mean 'cub'?"),
        (["check", "cub"], "--root DIR is their place"),
        (["check", "folder", "--root", "x"], "only data sets with an official layout are checked"),
        (["cub", "--root", "x", "--images"], "--images is for rankgrad datasets check"),
    ],
)
def test_the_command_says_what_it_needs(words, message, capsys):
    assert cli.main(["datasets", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.filterwarnings(HAND_MADE)
def test_the_command_describes_a_data_set_with_its_protocol(originals, capsys):
    assert cli.main(["datasets", "inshop", "--root", str(originals("inshop").root)]) == 0
    shown = capsys.readouterr().out
    assert "inshop: 12 images, 4 classes (RGB, files)" in shown
    assert "evaluated as query_gallery, 3 queries, 4 in the gallery" in shown


# --- protocols -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(HAND_MADE)
def test_query_gallery_is_the_division_that_came_with_the_data(originals):
    tree = originals("inshop")
    test = load_inshop(tree.root).select("test")
    (trial,) = trials(test)
    rows = [row for row in tree.rows if row.split == "test"]
    for kind, found in (("query", trial.query), ("gallery", trial.gallery)):
        assert found.tolist() == [i for i, row in enumerate(rows) if row.role == kind]
        assert [test.names[i] for i in found] == [row.file for row in rows if row.role == kind]
    with pytest.raises(ValueError, match="it has 0 and 0 images.*evaluation.split=test"):
        trials(load_inshop(tree.root).select("train"))


def test_missing_files_are_those_that_a_look_at_each_would_miss(tmp_path):
    paths = [tmp_path / folder / f"{number}.jpg" for folder in ("a", "b c", "é") for number in range(4)]
    for path in paths[:-5]:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "b c" / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "b c" / "folder.jpg").mkdir()
    (tmp_path / "b c" / "linked.jpg").symlink_to(paths[0])
    asked = [*paths, *(tmp_path / "b c" / f"{name}.jpg" for name in ("dangling", "folder", "linked")), paths[0] / "x"]
    assert missing_files(asked) == [path for path in asked if not path.is_file()]
