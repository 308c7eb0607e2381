"""Compares the files, counts and images of a data set with the published ones, and gives a remedy for each problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from rankgrad.common.progress import through
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.datasets.cache import in_threads
from rankgrad_workbench.datasets.identical import identical_lines
from rankgrad_workbench.datasets.images import Box, look, read_image, some
from rankgrad_workbench.datasets.inspection import NOT_COMPARABLE, Inspection, Observation

Counts = Mapping[str, tuple[int, int]]  # part ("train", "query", ...) -> (images, classes)
NAMED = 5  # number of broken images that are named


@dataclass(frozen=True)
class Need:
    """A file or folder of the official layout.

    Attributes:
        paths: the places where it may be, below the data set's folder.
        todo: what to do if it is missing.
        required: False: only an optional feature needs it.
    """

    paths: tuple[str, ...]
    todo: str
    required: bool = True


@dataclass(frozen=True)
class Official:
    """A data set as it was published, and how to read it.

    Attributes:
        title: its full name.
        get: where to get it, a sentence.
        home: root -> the data set's folder; raises FileNotFoundError.
        needs: files and folders of the layout.
        parts: the data set's folder -> tables of train, test, ...; reads the lists and opens no image.
        counts: images and classes of each part, as distributed.
        elsewhere: source -> other published counts. Data with these counts get a note and no error.
        super_labels: number of super-labels; None: it has none.
        protocols: evaluation protocols of the papers, see `protocols.trials`; the first is the default.
        ks: values of K for which papers report R@K.
        archives: downloaded file -> what to do with it.
    """

    title: str
    get: str
    home: Callable[[Path], Path]
    needs: tuple[Need, ...]
    parts: Callable[[Path], dict[str, Table]]
    counts: Counts
    elsewhere: Mapping[str, Counts] = field(default_factory=dict)
    super_labels: int | None = None
    protocols: tuple[str, ...] = ("leave_one_out",)
    ks: tuple[int, ...] = ()
    archives: Mapping[str, str] = field(default_factory=dict)


def published(load: Callable[..., object], official: Official) -> None:
    """Attach the check of a published data set to its loader, for `rankgrad datasets check`.

    >>> def load_mine(root):
    ...     ...
    >>> published(load_mine, Official("mine", "Ask me.", home=Path, needs=(), parts=lambda home: {}, counts={}))
    >>> load_mine.inspect(Path("photos")).title
    'mine: photos'
    """
    load.inspect = partial(inspect, official)  # type: ignore[attr-defined]


def inspect(official: Official, root: str | Path, images: bool = False) -> Inspection:
    """Check a data set: the files of its layout, the counts of its lists, and whether every listed image exists.

    Only lists and folders are read: the 461 939 images of iNaturalist took 13 s on a local disk.

    Args:
        official: the published data set.
        root: the folder that holds it.
        images: also decode every image (a JPEG at 1/8 of its size), and check that its box lies inside. This takes
            minutes to hours.

    >>> import tempfile
    >>> needs = (Need(("train.txt",), "Download train.txt."),)
    >>> mine = Official("my photos", "Ask me for them.", home=Path, needs=needs, parts=lambda home: {}, counts={})
    >>> with tempfile.TemporaryDirectory() as root:
    ...     found = inspect(mine, root)
    >>> found.wrong, found.findings[0].todo
    (1, 'Download train.txt.')
    """
    root = Path(root)
    try:
        home = official.home(root)
    except OSError as error:
        packed = _archives(official, root)
        todo = packed[0].todo if packed else ""
        return Inspection(f"{official.title}: {root}", (Observation("wrong", str(error), todo),))
    findings = [_need(home, need) for need in official.needs]
    absent = any(finding.status == "wrong" for finding in findings)
    if absent:
        findings += _archives(official, root)
    try:
        parts = official.parts(home)
    except (OSError, ValueError) as error:
        if not (absent and isinstance(error, FileNotFoundError)):  # an absent file is reported above
            findings.append(Observation("wrong", str(error), f"get the file again. {official.get}"))
        return Inspection(f"{official.title}: {home}", tuple(findings))
    findings += _counts(official, parts)
    findings += _overlaps(parts)
    paths = _paths(parts)
    missing = missing_files([*paths])
    if not (absent and len(missing) == len(paths)):  # a missing image folder is reported above, too
        findings.append(_presence(home, len(paths), missing, official))
    if images:
        decoded, small = _decoded(home, paths, set(missing))
        findings += [*decoded, *_identical(parts, small)]
    else:
        findings.append(Observation("note", "no image was opened; --images decodes every one"))
    return Inspection(f"{official.title}: {home}", tuple(findings))


def parts_of(table: Table) -> dict[str, Table]:
    """Tables of a data set's parts: rows with a role by role ("query", "gallery"), other rows by split.

    >>> table = Table("two", torch.tensor([0, 1]), ("a", "b"), ("train", "test"), ("0", "1"), channels=1,
    ...               images=torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    >>> [*parts_of(table)]
    ['train', 'test']
    """
    part = table.split
    if table.role is not None:
        part = tuple(role or split for role, split in zip(table.role, table.split, strict=True))
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(part):
        rows.setdefault(name, []).append(row)
    return {name: table.take(here) for name, here in rows.items()}


def missing_files(paths: Sequence[Path]) -> list[Path]:
    """The paths that are no files, in the given order. Every folder is read once; no file is opened."""
    there: dict[str, set[str]] = {}
    missing = []
    for path in through(paths, "looking for images", "image", len(paths)):
        folder, name = os.path.split(path)
        if folder not in there:
            there[folder] = _files(folder)
        if name not in there[folder]:
            missing.append(path)
    return missing


def _files(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}  # a broken link is not a file
    except (FileNotFoundError, NotADirectoryError):
        return set()


def count(table: Table) -> tuple[int, int]:
    """(images, classes)."""
    return len(table), len(torch.unique(table.label))


def off_counts(table: Table, counts: Counts, elsewhere: Mapping[str, Counts] | None = None) -> str:
    """A sentence if the counts of a table are not the published ones; else empty.

    Args:
        table: the whole data set.
        counts: published counts of its parts.
        elsewhere: source -> other published counts, which are accepted too.
    """
    counted = {name: count(part) for name, part in parts_of(table).items()}
    if any(all(counted.get(part) == n for part, n in each.items()) for each in (counts, *(elsewhere or {}).values())):
        return ""
    off = [
        f"{part}: {counted.get(part, (0, 0))} instead of {n}" for part, n in counts.items() if counted.get(part) != n
    ]
    return f"{table.name} does not have the published counts (images, classes): {'; '.join(off)}. {NOT_COMPARABLE}"


def _need(home: Path, need: Need) -> Observation:
    existing = next((path for path in need.paths if (home / path).exists()), None)
    if existing is not None:
        return Observation("ok", existing)
    return Observation("wrong" if need.required else "note", f"{' or '.join(need.paths)} is missing", need.todo)


def _archives(official: Official, root: Path) -> list[Observation]:
    """Notes on archives that were downloaded and may not be unpacked yet."""
    return [
        Observation("note", f"{path.relative_to(root)} was downloaded", todo)
        for name, todo in official.archives.items()
        for path in (root / name, *root.glob(f"*/{name}"))
        if path.is_file()
    ]


def _counts(official: Official, parts: Mapping[str, Table]) -> list[Observation]:
    findings = []
    for name, expected in official.counts.items():
        counted = count(parts[name]) if name in parts else (0, 0)
        text = f"{name}: {counted[0]} images of {counted[1]} classes"
        if counted == expected:
            findings.append(Observation("ok", text))
            continue
        source = next((source for source, counts in official.elsewhere.items() if counts.get(name) == counted), None)
        instead = f"{expected[0]} of {expected[1]}"
        if source is not None:
            todo = f"compare only with results on the same numbers; the official data set has {instead}"
            findings.append(Observation("note", f"{text}, as in {source}", todo))
        else:
            todo = f"the list is not the official one, or it is incomplete. {official.get}"
            findings.append(Observation("wrong", f"{text}; should be {instead}", todo))
    if official.super_labels is not None:
        labels = [part.super_label for part in parts.values() if part.super_label is not None]
        kinds = len(torch.unique(torch.cat(labels))) if labels else 0
        right = kinds == official.super_labels
        text = f"{kinds} super-labels" + ("" if right else f"; should be {official.super_labels}")
        findings.append(Observation("ok" if right else "wrong", text))
    return findings


def _overlaps(parts: Mapping[str, Table]) -> list[Observation]:
    """Check for repeated images, classes with several super-labels or in several parts, and queries without a match."""
    findings = []
    for name, part in parts.items():
        twice = len(part) - len(set(part.names))
        if twice:
            findings.append(Observation("wrong", f"{name}: {twice} images are listed more than once"))
        if part.super_label is not None:
            pairs = torch.unique(torch.stack([part.label, part.super_label]), dim=1)
            several = pairs.shape[1] - len(torch.unique(part.label))
            if several:
                todo = (
                    "batches from pairs of super-labels (sampler.batches_per_pair) need one for all images of a class"
                )
                findings.append(
                    Observation("note", f"{name}: {several} classes have images of several super-labels", todo)
                )
    classes = {name: {part.class_names[i] for i in torch.unique(part.label).tolist()} for name, part in parts.items()}
    for name in classes:
        shared = classes["train"] & classes[name] if name != "train" and "train" in classes else set()
        if shared:
            text = (
                f"{len(shared)} classes are in both train and {name}, such as {min(shared)}: not a test on new classes"
            )
            findings.append(Observation("wrong", text))
    alone = classes.get("query", set()) - classes.get("gallery", classes.get("query", set()))
    if alone:
        findings.append(Observation("wrong", f"{len(alone)} query classes have no gallery image, such as {min(alone)}"))
    return findings


def _presence(home: Path, listed: int, missing: Sequence[Path], official: Official) -> Observation:
    if not missing:
        return Observation("ok", f"all {listed} listed images exist")
    todo = next(iter(official.archives.values()), official.get)
    named = some([path.relative_to(home) for path in missing])
    return Observation("wrong", f"{len(missing)} of {listed} listed images are missing: {named}", todo)


def _decoded(
    home: Path, paths: Mapping[Path, Box | None], missing: Set[Path]
) -> tuple[list[Observation], dict[Path, bytes]]:
    """What is to be said about files that cannot be used, and the grey pixels of the others (`images.look`)."""
    here = [path for path in paths if path not in missing]

    def seen(row: int) -> tuple[str | None, bytes]:
        broken, small = look(here[row])
        box = paths[here[row]]
        if broken is None and box is not None:
            try:
                read_image(here[row], 3, box=box)
            except OSError as error:
                return str(error.__cause__), b""
        return broken, small

    seen_of = dict(zip(here, in_threads(seen, len(here), "decoding images"), strict=True))
    broken = [(path.relative_to(home), why) for path, (why, _) in seen_of.items() if why is not None]
    good = {path: small for path, (why, small) in seen_of.items() if why is None}
    if not broken:
        return [Observation("ok", f"all {len(here)} images can be read")], good
    lines = [Observation("wrong", f"{path}: {why}") for path, why in broken[:NAMED]]
    rest = len(broken) - len(lines)
    more = [Observation("wrong", f"... and {rest} more images that cannot be used")] if rest else []
    rest_read = Observation("note", f"{len(here) - len(broken)} of {len(here)} images can be read")
    return [*lines, *more, rest_read], good


def _identical(parts: Mapping[str, Table], small: Mapping[Path, bytes]) -> list[Observation]:
    """Notes on readable whole images that are identical files, or one picture in two splits."""
    rows = {
        path: (part.names[row], name, part.class_names[int(part.label[row])])
        for name, part in parts.items()
        for row, path in enumerate(part.paths or ())
        if part.box is None and path in small
    }
    names, splits, classes = zip(*rows.values(), strict=True) if rows else ((), (), ())
    lines = identical_lines([*rows], names, splits, classes, [small[path] for path in rows])
    return [Observation("note", line.strip()) for line in lines]


def _paths(parts: Mapping[str, Table]) -> dict[Path, Box | None]:
    """Every listed file once, with its box."""
    boxes: dict[Path, Box | None] = {}
    for part in parts.values():
        assert part.paths is not None
        boxes.update((path, part.box_of(row)) for row, path in enumerate(part.paths))
    return boxes
