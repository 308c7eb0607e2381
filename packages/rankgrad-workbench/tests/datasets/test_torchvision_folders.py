"""`rankgrad.fit` with the data sets of torchvision: names, files and labels without decoding an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split
from torchvision.datasets import ImageFolder

from rankgrad_workbench.datasets.given import given_table

pd = pytest.importorskip("pandas")

TRAIN, TEST = ("ant", "bee", "cat"), ("dog", "eel", "fox")


@pytest.fixture
def folders(tmp_path, monkeypatch) -> tuple[ImageFolder, ImageFolder]:
    for split, classes in (("train", TRAIN), ("test", TEST)):
        for at, name in enumerate(classes):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (8, 6), (40 * at, 90, 100 * number)).save(tmp_path / split / name / f"{number}.png")
    made = ImageFolder(tmp_path / "train"), ImageFolder(tmp_path / "test")
    monkeypatch.setattr(ImageFolder, "__getitem__", lambda *_: pytest.fail("an image was decoded"))
    return made


def test_classes_of_two_folders_are_told_apart_by_name(folders):
    table = given_table(*folders)
    assert table.class_names == TRAIN + TEST
    assert "both train and test" not in table.summary()
    assert table.select("test").label.tolist() == [3, 3, 4, 4, 5, 5]


def test_a_page_shows_the_files(folders):
    table = given_table(*folders).select("test")
    assert [Path(name).parts[-2:] for name in table.names[:2]] == [("dog", "0.png"), ("dog", "1.png")]
    assert table.picture(5, side=64)[:, 0, 0].tolist() == [80, 90, 100]


def test_labels_are_found_inside_of_subsets_and_joined_sets(folders):
    train, test = folders
    joined = ConcatDataset([train, Subset(test, [5, 0])])
    table = given_table(Subset(joined, [7, 6, 0]), random_split(test, [3, 3])[0])
    of_train = table.select("train")
    assert [table.class_names[label] for label in of_train.label] == ["dog", "fox", "ant"]
    assert [Path(path).parts[-2:] for path in of_train.paths] == [("dog", "0.png"), ("fox", "1.png"), ("ant", "0.png")]
    assert set(table.class_names) <= {*TRAIN, *TEST}


class Wrapped(Dataset):
    """A data set that transforms the inputs of another, as users write it."""

    def __init__(self, dataset, moved=0) -> None:
        self.dataset, self.moved = dataset, moved

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row):
        image, label = self.dataset[row]
        return image, label + self.moved


def test_names_are_found_below_a_data_set_that_keeps_the_labels(folders, monkeypatch):
    monkeypatch.setattr(ImageFolder, "__getitem__", lambda self, row: (0, self.targets[row]))
    table = given_table(*map(Wrapped, folders))
    assert table.class_names == TRAIN + TEST and table.paths is not None
    assert given_table(Wrapped(folders[0], moved=7)).class_names == ("7", "8", "9")


@pytest.mark.parametrize("of", [pd.Series, pd.Categorical, lambda labels: np.array(labels, dtype=object)])
def test_labels_of_a_data_frame_are_compared_by_their_words(of):
    points = torch.eye(4)
    table = given_table((points, of(["a", "a", "b", "b"])), (points, of(["b", "b", "c", "c"])))
    assert table.class_names == ("a", "b", "c") and table.label.tolist() == [0, 0, 1, 1, 1, 1, 2, 2]


def test_rows_of_a_data_frame_are_read_by_their_place():
    rows = pd.DataFrame(np.eye(4, 3), index=[7, 8, 9, 10])
    assert given_table((rows, [0, 0, 1, 1])).inputs.shape == (4, 3)
    assert given_table((pd.Series(list("wxyz"), index=[7, 8, 9, 10]), [0, 0, 1, 1])).captions == tuple("wxyz")


def test_a_data_set_without_labels_inside_a_subset_is_read():
    class Pairs(Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, row):
            return float(row), "ab"[row % 2]

    assert given_table(Subset(Pairs(), [1, 2, 3])).class_names == ("a", "b")
