"""What all formats of annotated images share: how scenes are gathered, and which classes they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankgrad_workbench.trec.alike import key

from .oddities import oddities
from .scenes import LeftOut, Scene, Scenes

Wrong = tuple[Path, str]  # a file of annotations, or an image, that cannot be used, and the message
Read = tuple[Scene, list[LeftOut]]
Sources = Iterable[tuple[Path, Callable[[], Read]]]  # a file of annotations, or an image, and what reads its scene


def gathered(
    root: Path,
    split: str,
    names: Sequence[str],
    sources: Sources,
    wrong: list[Wrong] | None,
) -> Scenes:
    """The scenes of a split.

    Args:
        root: the folder of the data.
        split: its name.
        names: of the classes.
        sources: file of annotations or of an image, and the function that reads its scene.
        wrong: gets each one that cannot be used. Its image is left out. None: the first error is raised.

    Raises:
        ValueError: see `oddities.oddities`.
    """
    scenes: list[Scene] = []
    left_out: list[LeftOut] = []
    for path, read in sources:
        with collected(wrong, path):
            scene, without = read()
            scenes.append(scene)
            left_out += without
    return Scenes(split, tuple(names), tuple(scenes), tuple(left_out), tuple(oddities(root, names, scenes)))


@contextmanager
def collected(wrong: list[Wrong] | None, path: Path) -> Iterator[None]:
    """Append an error to `wrong`, if that is a list."""
    try:
        yield
    except (OSError, ValueError) as error:
        if wrong is None:
            raise
        wrong.append((path, str(error)))


def chosen(classes: str | Sequence[str], data: Callable[[], Iterable[str]], known: str = "data") -> tuple[str, ...]:
    """The names of the classes.

    Args:
        classes: "data": what `data()` returns. Or a list of names.
        data: the classes of the files.
        known: the words that `classes` may be, for the message.

    Raises:
        ValueError: it is another word, or the names are not different texts.
    """
    if classes == "data":
        return tuple(data())
    if isinstance(classes, str):
        raise ValueError(f"classes must be {known} or a list of names; got {classes!r}")
    numbers = [name for name in classes if not isinstance(name, str)]
    if numbers:  # not converted: 01 was read as 1
        raise ValueError(f"classes must be texts; got {numbers[0]!r}. Quote numbers: \"classes=['{numbers[0]}']\"")
    if len(set(classes)) != len(classes) or not classes:
        raise ValueError(f"classes must be different names, at least one; got {list(classes)}")
    return tuple(classes)


def label(where: object, name: str, number: Mapping[str, int]) -> int:
    """The label of a class.

    Raises:
        ValueError: the class is not known; the message begins with `where`.
    """
    if name in number:
        return number[name]
    alike = (f" ({name!a} and {each!a} look alike)" for each in number if key(each) == key(name))
    raise ValueError(
        f"{where} has an object of class {name!r}, which is not among {', '.join(number)}{next(alike, '')}. "
        "classes=data uses all classes of the annotations"
    )
