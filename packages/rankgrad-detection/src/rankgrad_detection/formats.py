"""Which of its files hold the boxes of a folder of images: VOC's, COCO's or YOLO's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad.common.checks import one_of
from rankgrad_workbench.datasets.images import not_an_image

from . import coco, voc, yolo
from .annotations import Wrong
from .scenes import Scenes

AUTO = "auto"


# Modules with `NEEDS` (what a folder has, for messages), `load`, `here`, `set_names` and `class_names`.
FORMATS = {"voc": voc, "coco": coco, "yolo": yolo}


def format_of(root: str | Path, name: str = AUTO) -> str:
    """The name of a format; "auto" is the one that a folder looks like.

    Raises:
        FileNotFoundError: it looks like none.
        ValueError: it looks like several, or the name is unknown.
    """
    one_of(name, "data.format", (AUTO, *FORMATS))
    if name != AUTO:
        return name
    found = [name for name, each in FORMATS.items() if each.here(Path(root))]
    if not found:
        what = "has no boxes" if Path(root).is_dir() else "does not exist"
        needs = "; ".join(f"{name}: {each.NEEDS}" for name, each in FORMATS.items())
        images = (path for depth in ("*/*", "*/*/*") for path in Path(root).glob(depth) if not not_an_image(path))
        hint = ". Images without boxes, such as folders of classes: rankgrad train data=folder" if any(images) else ""
        raise FileNotFoundError(f"{root} {what}: pass a folder with one of these. {needs}{hint}")
    if len(found) > 1:
        raise ValueError(f"{root} has files of {' and '.join(found)}: say which, such as data.format={found[0]}")
    return found[0]


def load_scenes(
    root: str | Path,
    split: str,
    classes: str | Sequence[str] = "data",
    name: str = AUTO,
    wrong: list[Wrong] | None = None,
) -> Scenes:
    """Read the images of one or several splits, see `voc.load_voc`, `coco.load_coco` and `yolo.load_yolo`.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     Path(root, "train").mkdir()
    ...     Image.new("RGB", (8, 8)).save(Path(root, "train", "a.png"))
    ...     _ = Path(root, "train", "a.txt").write_text("0 0.5 0.5 0.25 0.25")
    ...     _ = Path(root, "classes.txt").write_text("cell")
    ...     format_of(root), len(load_scenes(root, "train"))
    ('yolo', 1)
    """
    scenes: Scenes = FORMATS[format_of(root, name)].load(root, split, classes, wrong)
    return scenes
