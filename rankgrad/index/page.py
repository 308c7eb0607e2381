"""A contact sheet of answers: one HTML file with each query and what was found. Loads nothing, runs no script."""

from __future__ import annotations

import base64
import html
import io
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from .._version import __version__
from ..files import write_text
from .query import Answer, Hit

SIDE = 160  # longest side of a stored picture in pixels; the page shows them at about 110


def write_sheet(
    path: str | os.PathLike[str],
    answers: Sequence[Answer],
    *,
    title: str = "What is like these?",
    facts: Mapping[str, object] | None = None,
) -> Path:
    """Write the page; replaced as a whole if it is there.

    A picture is stored once, however often it was found. A file that can't be read any more is shown by its name.

    Args:
        path: the file; its folder must exist.
        answers: from `find.find`.
        title: heading of the page.
        facts: what stands under the heading, name -> value.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    pictures = _Pictures()
    shown = {"queries": f"{len(answers):,}", **(facts or {})}
    page = Template(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        version=_text(__version__),
        title=_text(title),
        facts="".join(f"<li><span>{_text(name)}</span> {_text(value)}</li>" for name, value in shown.items()),
        answers="\n".join(_answer(answer, pictures) for answer in answers),
        pictures="\n".join(pictures.stored),
    )
    write_text(path, page)
    return path


def _answer(answer: Answer, pictures: _Pictures) -> str:
    hits = "".join(_hit(hit, pictures) for hit in answer.hits) or "<li>nothing was found</li>"
    return f"""<article class="card"><div class="asked">{pictures.show(answer.query, f"query {answer.query.name}")}
<h2>{_breakable(answer.query.name)}</h2><p title="{_text(answer.query)}">{_breakable(answer.query.parent)}</p></div>
<ol>{hits}</ol></article>"""


def _hit(hit: Hit, pictures: _Pictures) -> str:
    where = f"<b>{_breakable(hit.class_name)}</b> " if hit.class_name else ""
    filled = round(100 * min(max(hit.score, 0.0), 1.0))
    return (
        f'<li>{pictures.show(hit.path, f"{hit.rank}: {hit.name}")}<div class="score"><span>{hit.rank}</span>'
        f"<span>{hit.score:.3f}</span></div>"
        f'<div class="bar" aria-hidden="true"><i style="width:{filled}%"></i></div>'
        f'<p title="{_text(hit.path)}">{where}{_breakable(Path(hit.name).name)}</p></li>'
    )


class _Pictures:
    """The pictures of a page: each file stored once, shown by reference."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self._known: dict[Path, tuple[str, int, int] | None] = {}

    def show(self, path: Path, label: str) -> str:
        """An <svg> that shows the file."""
        if path not in self._known:
            self._known[path] = self._store(path)
        known = self._known[path]
        if known is None:
            return f'<div class="pic gone" role="img" aria-label="{_text(label)}, no file">no file</div>'
        name, width, height = known
        return (
            f'<svg class="pic" viewBox="0 0 {width} {height}" role="img" aria-label="{_text(label)}">'
            f'<use href="#{name}" /></svg>'
        )

    def _store(self, path: Path) -> tuple[str, int, int] | None:
        from PIL import Image

        from ..datasets.base import read_image

        try:
            pixels = read_image(path, 3)
        except OSError:  # moved or broken since the index was made; its name is still worth showing
            return None
        picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        picture.thumbnail((SIDE, SIDE))
        kind, data = _smallest(picture)
        name = f"p{len(self.stored)}"
        width, height = picture.size
        source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        self.stored.append(f'<image id="{name}" width="{width}" height="{height}" href="{source}" />')
        return name, width, height


def _smallest(picture: object) -> tuple[str, bytes]:
    """PNG for drawings, JPEG for photographs: whichever is smaller."""
    from PIL import Image

    assert isinstance(picture, Image.Image)
    png, jpeg = io.BytesIO(), io.BytesIO()
    picture.save(png, "PNG", optimize=True)
    picture.save(jpeg, "JPEG", quality=85)
    return ("png", png.getvalue()) if png.tell() <= jpeg.tell() else ("jpeg", jpeg.getvalue())


def _text(value: object) -> str:
    # control characters and lone surrogates (bad file names) have no place in HTML; keep their position visible
    clean = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", str(value))
    return html.escape(clean)


def _breakable(value: object) -> str:
    """Text that may break after / _ - . as long names do not fit a thumbnail."""
    return re.sub(r"([/_.\-])(?=[^\s/_.\-])", r"\1<wbr>", _text(value))


__all__ = ["write_sheet"]
