"""Checks the lists, counts, images and boxes of a folder, and gives a remedy for each problem."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

from rankgrad_workbench.datasets.images import image_size, some
from rankgrad_workbench.datasets.inspection import NOT_COMPARABLE, CountWarning, Inspection, Observation, Status

from .annotations import Wrong
from .formats import AUTO, FORMATS, format_of
from .scenes import Scenes
from .voc import CLASSES, FOLDERS, folder, load_voc, set_names

# Published numbers of images, objects without difficult ones, and all objects of these sets.
COUNTS = {
    "2007/trainval": (5011, 12608, 15662),
    "2007/test": (4952, 12032, 14976),
    "2012/trainval": (11540, 27450, 31561),
}
YEARS = ("2007", "2012")
SHOWN = 5
TOLD = "{} images, {} objects ({} with the difficult ones)"
APART = {("trainval", "test"), ("train", "test"), ("val", "test"), ("train", "val")}  # have no image in common


def inspect_boxes(root: str | Path, images: bool = False, name: str = AUTO) -> Inspection:
    """Check a folder of images with boxes.

    Args:
        root: the folder.
        images: whether to decode every image and compare its size with the annotated size.
        name: voc, coco or yolo; auto: what the folder looks like.

    Raises:
        FileNotFoundError, ValueError: see `formats.format_of`.
    """
    name = format_of(root, name)
    if name == "voc":
        return inspect_voc(root, images)
    return Inspection(f"{name} layout: {root}", tuple(_plain(Path(root), images, name)))


def inspect_voc(root: str | Path, images: bool = False) -> Inspection:
    """Check a VOC folder: lists, annotations, images, counts of the official sets, wrong boxes.

    Args:
        root: VOCdevkit, its parent, a year's folder, or a folder of the same structure.
        images: whether to decode every image and compare its size with the annotated size.
    """
    root = Path(root)
    homes = {year: home for year in YEARS if (home := _home(root, year)) is not None}
    if not homes:
        plain = _home(root, None)
        if plain is None:
            text = f"{root} has neither VOC2007 or VOC2012 nor {', '.join(FOLDERS)}"
            todo = "pass VOCdevkit, or a folder with the structure of VOC2007: --root DIR"
            return Inspection(f"VOC layout: {root}", (Observation("wrong", text, todo),))
        return Inspection(f"VOC layout: {plain}", tuple(_plain(plain, images, "voc")))
    findings: list[Observation] = []
    for year, home in homes.items():
        for name in ("trainval", "test"):
            if name in set_names(home) or f"{year}/{name}" == "2007/test":
                findings += _official(root, f"{year}/{name}", images)
    return Inspection(f"Pascal VOC: {', '.join(map(str, homes.values()))}", tuple(findings))


def off_counts(scenes: Scenes) -> str:
    """A sentence, with a warning, if an official set does not have the published counts; else empty.

    Warns:
        CountWarning: the sentence.
    """
    published = [COUNTS[name] for name in scenes.name.split("+") if name in COUNTS]
    if len(published) < len(scenes.name.split("+")):
        return ""  # a set of one's own, or one of which no counts are published
    wanted, counts = tuple(map(sum, zip(*published, strict=True))), _counts(scenes)
    if wanted == counts:
        return ""
    text = f"{scenes.name} does not have the published counts: {TOLD.format(*counts)} instead of "
    text += f"{TOLD.format(*wanted)}. {NOT_COMPARABLE}"
    warnings.warn(text, CountWarning, stacklevel=2)
    return text


def _counts(scenes: Scenes) -> tuple[int, int, int]:
    """Numbers of images, of objects without difficult ones, and of all objects."""
    return len(scenes), sum(scenes.objects().values()), sum(scenes.objects(difficult=True).values())


def _home(root: Path, year: str | None) -> Path | None:
    try:
        return folder(root, year)
    except FileNotFoundError:
        return None


def _official(root: Path, split: str, images: bool) -> list[Observation]:
    wrong: list[Wrong] = []
    try:
        scenes = load_voc(root, split, wrong=wrong)
        missing = _unusable(wrong)
    except (OSError, ValueError) as error:
        todo = "unpack the official archive of this set into the same VOCdevkit"
        missing = [Observation("wrong", f"{split}: {error}", todo)]
    if missing and split == "2012/test":
        return [Observation("note", "2012/test has no public annotations, so it cannot be evaluated")]
    if missing:
        return missing
    counts, published = _counts(scenes), COUNTS.get(split)
    text = f"{split}: {TOLD.format(*counts)}"
    if published is None or published == counts:
        finding = Observation("ok", text)
    else:
        todo = "unpack the archive again; otherwise numbers are not comparable"
        finding = Observation("wrong", f"{text}; published: {TOLD.format(*published)}", todo)
    return [finding, *_boxes(split, scenes), *(_sizes(split, scenes) if images else [])]


def _plain(home: Path, images: bool, name: str) -> list[Observation]:
    """The findings about a folder without years."""
    kind = FORMATS[name]
    names = kind.set_names(home)
    if not names:
        return [Observation("wrong", f"{home} has no list of images", "write ImageSets/Main/trainval.txt and test.txt")]
    wrong: list[Wrong] = []
    listed: dict[str, Scenes] = {}
    try:
        classes = sorted(kind.class_names(home, wrong)) if name == "voc" else list(kind.class_names(home, wrong))
    except (OSError, ValueError) as error:
        return [Observation("wrong", str(error), "correct this file")]
    if not classes:
        return _unusable(wrong)
    findings = [Observation("ok", f"{len(classes)} classes: {', '.join(classes)}")]
    if name == "voc" and set(classes) - set(CLASSES):
        findings.append(Observation("note", "the classes are not VOC's own: read the folder with data.classes=data"))
    for split in names:
        without: list[Wrong] = []
        try:
            scenes = kind.load(home, split, classes, without)
        except (OSError, ValueError) as error:
            findings.append(Observation("wrong", f"{split}: {error}", "correct the list, or get the files"))
            continue
        listed[split] = scenes
        wrong += without
        text = replace(scenes, notes=()).summary()  # the notes have lines of their own
        text += f"; {len(without)} images have an annotation that cannot be used" if without else ""
        findings.append(Observation("note" if without else "ok", text))
        findings += _boxes(split, scenes) + (_sizes(split, scenes) if images else [])
    return findings + _unusable(wrong) + _overlap(listed)


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
        named = "; ".join(f"{file}, {reason}" for file, reason in scenes.left_out[:SHOWN])
        text = f"{split}: {len(scenes.left_out)} objects are left out: {named}"
        findings.append(Observation("note", text))
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
    broken, other, as_stored = [], [], []
    for scene in scenes.scenes:
        try:
            size, upright = scene.image().size, image_size(scene.path)[::-1]
        except OSError:
            broken.append(scene.name)
            continue
        if size != scene.size:
            other.append(f"{scene.name} ({size[0]} x {size[1]}, annotated {scene.size})")
        elif size != upright:
            as_stored.append(scene.name)
    findings: list[Observation] = []
    kinds: tuple[tuple[list[str], Status, str, str], ...] = (
        (broken, "wrong", "can't be decoded", ""),
        (other, "note", "have another size than annotated", "; the size of the file is used"),
        (as_stored, "note", "have an EXIF tag that turns them, but were annotated as stored: they are not turned", ""),
    )
    for names, status, what, rest in kinds:
        if names:
            text = f"{split}: {len(names)} images {what}, e.g. {some(names, SHOWN)}{rest}"
            findings.append(Observation(status, text, "get these files again" if status == "wrong" else ""))
    return findings or [Observation("ok", f"{split}: every image decodes and has the annotated size")]


def _overlap(listed: Mapping[str, Scenes]) -> list[Observation]:
    """Images in two splits that should have none in common, such as train2017 and val2017."""
    part = {
        name: next((each for each in ("trainval", "train", "val", "test") if name.startswith(each)), "")
        for name in listed
    }
    paths = {name: {scene.path for scene in scenes.scenes} for name, scenes in listed.items()}
    findings = []
    for name, other in product(listed, listed):
        common = sorted(paths[name] & paths[other])
        if common and (part[name], part[other]) in APART:
            text = f"{len(common)} images are in {name} and in {other}, e.g. {common[0].name}"
            findings.append(Observation("wrong", text, "remove them from one of the lists"))
    return findings
