"""Images listed in a file: a csv, tsv, jsonl or parquet with a path and a class in each row."""

from __future__ import annotations

from pathlib import Path

from rankgrad.common.checks import setting
from rankgrad.common.text import shown

from ..files import inside
from .base import Cache, Table, check_reading
from .division import need_fractions
from .folder import usable
from .identical import identical_lines
from .tabular import AUTO, Columns, read_columns


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
    cache: Cache = "none",
    cache_dir: str | Path | None = None,
) -> Table:
    r"""A table of the images that a file lists (csv, tsv, jsonl, parquet), with a column for paths and one for classes.

    `Table.skipped` lists the files that cannot be used.

    Args:
        root: the file.
        path: column of the images' paths, relative to `images`. A path must not leave this folder.
        label: column of the classes, strings or integers.
        super_label: column of coarser classes; "auto": the column super_label, if it exists; None: no such column.
        split: column of the splits, train, val and test or the other names in `division.CALLED`; query and gallery in
            place of test: queries are ranked against the gallery; "auto": the column
            split, if it exists; None: no such column.
        group: column of the group id; "auto": the column group, if it exists; None: no such column. Items of the
            query's own group are not ranked for it.
        images: folder of the images; None: the folder of the file.
        separator: between the classes in the label of an image with several classes, such as "|". Two images are then
            relevant to each other if they share a class. Needs a column of splits. None: each image has one class.
        delimiter: of a csv; backslash and t for a tab; None: a comma, or a tab in a tsv.
        test_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        val_fraction: fraction of the classes, 0 .. 1; not used with a column of splits.
        seed: of the division, see `division.divide`.
        channels: 3 (RGB) or 1 (grey); files are converted to it.
        check: read every file now. False is faster; a broken file then stops training with an `OSError`.
        shorter_side: see `load_folder`.
        cache: see `load_folder`.
        cache_dir: see `load_folder`.

    Raises:
        FileNotFoundError: the file or the folder does not exist.
        ValueError: a row is wrong (the message names it); a path is repeated or outside of the folder; no image is
            readable.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(8):
    ...         Image.new("RGB", (8, 8)).save(Path(folder, f"{number}.png"))
    ...     rows = ["path,label", *(f"{number}.png,{'abcd'[number % 4]}" for number in range(8))]
    ...     file = Path(folder, "photos.csv")
    ...     _ = file.write_text("\n".join(rows))
    ...     table = load_manifest(file)
    >>> table.class_names, table.label
    (('a', 'b', 'c', 'd'), tensor([0, 1, 2, 3, 0, 1, 2, 3]))
    """
    file = Path(root)
    need_fractions(test_fraction, val_fraction)
    check_reading(channels, shorter_side, cache, cache_dir)
    wanted = {"path": path, "label": label, "super_label": super_label, "split": split, "group": group}
    read = read_columns(file, wanted, delimiter)
    home = file.parent if images is None else Path(images)
    if not home.is_dir():
        raise FileNotFoundError(f"there is no folder of images at {shown(home)}")
    paths = _paths(read, home)
    read.table(separator)  # a wrong row is told before images are read
    rows, skipped, small = usable(paths, check)
    if len(skipped) == len(paths):
        raise ValueError(
            f"none of the {len(paths)} images of {shown(file)} can be read below {shown(home)}. Give the folder of the "
            f"images: {setting('images', 'DIR')}. The first error, {shown(skipped[0][0])}: {skipped[0][1]}"
        )
    read, paths = read.take(rows), [paths[row] for row in rows]
    columns = read.table(separator, test_fraction, val_fraction, seed)
    columns["names"] = names = tuple(map(shown, read.values["path"]))
    table = Table(
        **columns,
        channels=channels,
        paths=tuple(paths),
        skipped=skipped,
        remarks=identical_lines(paths, names, columns["split"], read.values["label"], small) if check else (),
        shorter_side=shorter_side,
    )
    return table.cached(cache, cache_dir)


def _paths(read: Columns, home: Path) -> list[Path]:
    """[row] the files. Raises if a file is outside of the folder or is repeated."""
    first: dict[Path, str] = {}  # a path, since a.png and ./a.png are one file
    for name, place in zip(read.values["path"], read.places, strict=True):
        try:
            path = inside(home, name)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if first.setdefault(path, place) != place:
            raise ValueError(f"{place} lists {shown(name)!r} again, after {first[path]}; an image must have one row")
    return list(first)
