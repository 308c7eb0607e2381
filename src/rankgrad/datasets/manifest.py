"""Images that a file lists: a csv, tsv, jsonl or parquet with a path and a class in each row."""

from __future__ import annotations

from pathlib import Path

from ..checks import setting
from ..files import inside, shown
from .base import Cache, Table, check_reading
from .cache import in_threads
from .division import divide, need_fractions
from .images import check_image
from .rows import numbered, numbered_several, several_classes
from .tabular import AUTO, as_split, need_split_of_several, need_two_splits, read_columns, require_one


def load_manifest(
    root: str | Path,
    path: str = "path",
    label: str = "label",
    super_label: str | None = AUTO,
    split: str | None = AUTO,
    group: str | None = AUTO,
    images: str | Path | None = None,
    separator: str | None = None,
    delimiter: str | None = None,
    test_fraction: float = 0.5,
    val_fraction: float = 0.0,
    seed: int = 0,
    channels: int = 3,
    check: bool = True,
    shorter_side: int | None = None,
    draft: bool = False,
    cache: Cache = "none",
    cache_dir: str | Path | None = None,
) -> Table:
    """A table of the images that a file lists (csv, tsv, jsonl, parquet), a column each for path and class.

    Files that can't be used are listed in `Table.skipped`, as those of a folder are.

    Args:
        root: the file.
        path: column of the images' paths, relative to `images`; none may lead out of it.
        label: column of the classes, strings or integers.
        super_label: column of coarser classes; "auto": the column super_label, if there is one; None: there is none.
        split: column with train, val and test, or what else `division.CALLED` knows; "auto": the column split, if there
            is one; None: there is none.
        group: column of what a relevant image may not share with its query; "auto": the column group, if there is one.
        images: folder of the images; None: the one in which the file lies.
        separator: between the classes of an image that has several in its label, such as "|": relevant is then what
            shares a class. Needs a column with the split. None: each image has one class.
        delimiter: of a csv, a backslash and t for a tab; None: the comma, or the tab of a tsv.
        test_fraction: of the classes, 0 .. 1; not used with a split.
        val_fraction: of the classes, 0 .. 1; not used with a split.
        seed: of the division, see `division.divide`.
        channels: 3 (RGB) or 1 (grey): what the files are converted to.
        check: read every file now. False is quicker; a broken file then stops training with an `OSError`.
        shorter_side: see `load_folder`, as the next three.
        draft: of large JPEG files.
        cache: of decoded files.
        cache_dir: its folder.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: a bad row, named; a path twice or outside of the folder; no readable image.
    """
    file = Path(root)
    need_fractions(test_fraction, val_fraction)
    check_reading(channels, shorter_side, draft, cache, cache_dir)
    wanted = {"path": path, "label": label, "super_label": super_label, "split": split, "group": group}
    read = read_columns(file, wanted, delimiter)
    home = file.parent if images is None else Path(images)
    if not home.is_dir():
        raise FileNotFoundError(f"there is no folder of images at {shown(home)}")
    names = read.values["path"]
    first: dict[str, str] = {}
    paths: list[Path] = []
    for name, place in zip(names, read.places, strict=True):
        if first.setdefault(name, place) != place:
            raise ValueError(
                f"{place} lists {shown(name)!r} again, which {first[name]} has listed; an image has one row"
            )
        try:
            paths.append(inside(home, name))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    listed = None if separator is None else several_classes(read.values["label"], separator, read.places)
    need_split_of_several(listed, "split" in read.values, file)
    if "super_label" in read.values and listed is None:
        require_one(read.values["label"], read.values["super_label"], read.places, read.names["super_label"])
    splits = [as_split(value, at) for value, at in zip(read.values.get("split", ()), read.places, strict=False)]
    if splits:
        need_two_splits(set(splits), file)
    reasons = list(in_threads(lambda row: check_image(paths[row]), len(paths), "checking images")) if check else []
    good = [row for row in range(len(paths)) if not reasons or reasons[row] is None]
    skipped = [(str(paths[row]), reason) for row, reason in enumerate(reasons) if reason is not None]
    if not good:
        raise ValueError(
            f"none of the {len(paths)} images of {shown(file)} can be read below {shown(home)}: is that their folder? "
            f"Say which one it is: {setting('images', 'DIR')}. The first, {shown(skipped[0][0])}: {skipped[0][1]}"
        )
    labels = [read.values["label"][row] for row in good]
    if not splits:
        of_class = divide(set(labels), test_fraction, val_fraction, seed)
    supers = read.values.get("super_label")
    groups = read.values.get("group")
    class_names, numbers, several = (
        (*numbered(labels), None) if listed is None else numbered_several([listed[row] for row in good])
    )
    super_names, super_numbers = ((), None) if supers is None else numbered([supers[row] for row in good])
    said = [f"{role.replace('_', '-')} = {shown(name)}" for role, name in read.names.items()]
    table = Table(
        name=file.stem,
        label=numbers,
        class_names=class_names,
        split=tuple(splits[row] if splits else of_class[name] for row, name in zip(good, labels, strict=True)),
        names=tuple(shown(names[row]) for row in good),
        channels=channels,
        paths=tuple(paths[row] for row in good),
        several=several,
        super_label=super_numbers,
        super_names=super_names,
        group=None if groups is None else tuple(groups[row] for row in good),
        skipped=tuple(skipped),
        shorter_side=shorter_side,
        draft=draft,
        understood=f"{file.name} is understood as {', '.join([*said, *([] if splits else ['divided by class'])])}",
    )
    return table.cached(cache, cache_dir)
