"""Checks the lists, counts, images and boxes of a folder, and gives a remedy for each problem."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import torch

from rankgrad_workbench.datasets.images import image_size, some
from rankgrad_workbench.datasets.inspection import NOT_COMPARABLE, CountWarning, Inspection, Observation

from .annotations import Wrong
from .formats import AUTO, FORMATS, format_of
from .scenes import Scenes
from .voc import CLASSES, homes

# Published numbers of images, objects without difficult ones, and all objects of these sets.
COUNTS = {
    "2007/trainval": (5011, 12608, 15662),
    "2007/test": (4952, 12032, 14976),
    "2012/trainval": (11540, 27450, 31561),
}
SHOWN = 5
TOLD = "{} images, {} objects ({} with the difficult ones)"
BROKEN = "can't be decoded"
OTHER_SIZE = "have another size than annotated, and the size of the file is used"
AS_STORED = "have an EXIF tag that turns them, but were annotated as stored: they are not turned"


def inspect_boxes(root: str | Path, images: bool = False, name: str = AUTO) -> Inspection:
    """Check a folder of images with boxes: lists, annotations, counts of VOC's official sets, wrong boxes.

    Args:
        root: the folder.
        images: whether to decode every image and compare its size with the annotated size.
        name: voc, coco or yolo; auto: what the folder looks like.

    Raises:
        FileNotFoundError, ValueError: see `formats.format_of`.
    """
    root = Path(root)
    name = format_of(root, name)
    kind, title, wrong = FORMATS[name], f"{name} layout: {root}", list[Wrong]()
    official = [split for split in COUNTS if name == "voc" and homes(root, split[:4])]
    try:
        classes = CLASSES if official else tuple(kind.class_names(root, wrong))
        splits = official or kind.set_names(root)
        if not splits:
            raise ValueError(f"{root} has no list of images, such as ImageSets/Main/trainval.txt and test.txt")
    except (OSError, ValueError) as error:
        return Inspection(title, (Observation("wrong", str(error), "correct this file"),))
    if not classes:
        return Inspection(title, tuple(_unusable(wrong)))
    findings = [Observation("ok", f"{len(classes)} classes: {', '.join(classes)}")]
    if name == "voc" and set(classes) - set(CLASSES):
        findings.append(Observation("note", "the classes are not VOC's own: read the folder with data.classes=data"))
    listed: dict[str, Scenes] = {}
    for split in splits:
        without: list[Wrong] = []
        try:
            scenes = listed[split] = kind.load(root, split, classes, without)
        except (OSError, ValueError) as error:
            findings.append(Observation("wrong", f"{split}: {error}", "correct the list, or get the files"))
            continue
        wrong += without
        text = replace(scenes, notes=()).summary()  # the notes have lines of their own
        text += f"; {len(without)} images have an annotation that cannot be used" if without else ""
        findings.append(Observation("note" if without else "ok", text))
        if off := _off(scenes):
            findings.append(Observation("wrong", off, "unpack the archive again into the same VOCdevkit"))
        findings += _boxes(split, scenes) + (_sizes(split, scenes) if images else [])
    return Inspection(title, (*findings, *_unusable(wrong), *_overlap(listed)))


def off_counts(scenes: Scenes) -> str:
    """A sentence, with a warning, if an official set does not have the published counts; else empty.

    Warns:
        CountWarning: the sentence.
    """
    text = _off(scenes)
    if text:
        warnings.warn(text, CountWarning, stacklevel=2)
    return text


def _off(scenes: Scenes) -> str:
    published = [COUNTS[name] for name in scenes.name.split("+") if name in COUNTS]
    if len(published) < len(scenes.name.split("+")):
        return ""  # a set of one's own, or one of which no counts are published
    counts = (len(scenes), *(sum(scenes.objects(difficult=hard).values()) for hard in (False, True)))
    wanted = tuple(map(sum, zip(*published, strict=True)))
    if wanted == counts:
        return ""
    text = f"{scenes.name} does not have the published counts: {TOLD.format(*counts)} instead of "
    return text + f"{TOLD.format(*wanted)}. {NOT_COMPARABLE}"


def _unusable(wrong: list[Wrong]) -> list[Observation]:
    """The annotations that cannot be used, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for path, text in dict(reversed(wrong)).items():  # the first message about each
        reasons.setdefault(text.removeprefix(str(path)).lstrip(": "), []).append(path.name)
    todo = "correct these annotations, or take their images off the lists"
    return [
        Observation("wrong", f"{len(names)} annotations, e.g. {some(sorted(names), SHOWN)}: {reason}", todo)
        for reason, names in sorted(reasons.items())
    ]


def _boxes(split: str, scenes: Scenes) -> list[Observation]:
    findings = [Observation("note", f"{split}: {note}") for note in scenes.notes]
    if scenes.left_out:
        named = some(scenes.left_out, SHOWN)
        findings.append(Observation("note", f"{split}: {len(scenes.left_out)} objects are left out: {named}"))
    outside, far = [], []
    for scene in scenes.scenes:
        sides = torch.tensor(scene.size, dtype=scene.boxes.dtype)
        low, high = scene.boxes[:, :2], scene.boxes[:, 2:]
        # the box is completely outside, or extends beyond the image by more than the image's side
        if bool(((low >= sides) | (high <= 0) | (low < -sides) | (high > 2 * sides)).any()):
            far.append(scene.name)
        elif bool(((low < 0) | (high > sides)).any()):
            outside.append(scene.name)
    if far:
        text = f"{split}: {len(far)} images have boxes far outside, e.g. {some(far, SHOWN)}"
        findings.append(Observation("wrong", text, "correct or remove these boxes: no detector can find them"))
    if outside:
        text = f"{split}: {len(outside)} images have boxes that reach outside, e.g. {some(outside, SHOWN)}"
        most = 2 * len(outside) > len(scenes)
        hint = ". Are they corners, or of another size of the images?" if most else ""
        findings.append(Observation("note", f"{text}; training clips them, evaluation does not{hint}"))
    return findings


def _sizes(split: str, scenes: Scenes) -> list[Observation]:
    found: dict[str, list[str]] = {}
    for scene in scenes.scenes:
        try:
            size, upright = scene.image().size, image_size(scene.path)[::-1]
        except OSError:
            found.setdefault(BROKEN, []).append(scene.name)
            continue
        if size != scene.size:
            found.setdefault(OTHER_SIZE, []).append(f"{scene.name} ({size[0]} x {size[1]}, annotated {scene.size})")
        elif size != upright:
            found.setdefault(AS_STORED, []).append(scene.name)
    if not found:
        return [Observation("ok", f"{split}: every image decodes and has the annotated size")]
    texts = {what: f"{split}: {len(names)} images {what}, e.g. {some(names, SHOWN)}" for what, names in found.items()}
    again = "get these files again"
    return [
        Observation("wrong", text, again) if what == BROKEN else Observation("note", text)
        for what, text in texts.items()
    ]


def _overlap(listed: Mapping[str, Scenes]) -> list[Observation]:
    """Images in two splits that should have none in common, such as train2017 and val2017."""
    findings = []
    for pair in combinations(listed, 2):
        one, other = (next(filter(name.startswith, ("trainval", "train", "val", "test")), "") for name in pair)
        common = sorted(set.intersection(*({scene.path for scene in listed[name].scenes} for name in pair)))
        if common and one not in other and other not in one:
            text = f"{len(common)} images are in {pair[0]} and in {pair[1]}, e.g. {common[0].name}"
            findings.append(Observation("wrong", text, "remove them from one of the lists"))
    return findings
