"""Glyphs: images of 703 letters of five scripts in twelve typefaces, rendered when loaded. Nothing is downloaded.

A class is a character. Its images show it in the DejaVu typefaces that matplotlib contains, deformed. Serif, monospaced
and italic typefaces draw some letters in different ways, so that a class has several centres. Training letters are
Latin and Cyrillic; test letters are Greek, Armenian and Georgian. So the classes *and* the scripts of the test are
unseen. `glyph_codepoints.csv` lists the letters (code point, script, split). Look-alikes were removed from this list.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.common.checks import integer, number

from .base import SPLITS, Table
from .transforms import warp

SCRIPTS = ("Latin", "Cyrillic", "Greek", "Armenian", "Georgian")
FACES = tuple(
    f"DejaVu{family}{style}"
    for family, slanted in (("Sans", "Oblique"), ("Serif", "Italic"), ("SansMono", "Oblique"))
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
)
SIZE = 28  # pixels of an image

# of the clean images, as rendered with DejaVu 2.37 (in matplotlib since version 2)
CLEAN_SHA256 = "14aa1e1c83215b0a7604ed36238f6b1f7fac15fffe0dbd9324298719894c1855"

_FINE = 2 * SIZE  # letters are rendered and deformed at twice the resolution, then averaged, for smooth edges
_SUBSAMPLES = 2  # per side of a fine pixel
_INK = 0.62  # longest side of a letter, as a fraction of the frame
_PIECES = 8  # straight segments per curve of an outline
_CONTROL = 5  # control points of the elastic displacement, per side

Floats = npt.NDArray[np.float64]


class GlyphFontWarning(UserWarning):
    """The clean glyphs differ from those of the published results, because matplotlib contains other fonts."""


def load_glyphs(seed: int = 0, hard: float = 0.6) -> Table:
    """Glyphs, built in: 703 letters of five scripts in 12 typefaces, 8436 grey images of 28 x 28, rendered when loaded.

    Each letter is scaled so that its longest side takes 62 % of the frame (an o and an O differ by shape only). It is
    then deformed: stroke width, rotation, zoom, shear, shift, elastic displacement, a straight line across some images,
    grey levels of ink and background, noise. The same (seed, hard) gives the same pixels, on one machine bit by bit.

    Args:
        seed: of the deformation, 0 .. 2**32 - 1.
        hard: strength of the deformation, 0 (clean) .. 1. At 0.6: rotation up to 11 degrees, zoom 13 %, shear 0.15,
            shift 4 % of the frame, elastic displacement 3 %, a line on 30 % of the images, noise of standard deviation
            0.06.

    Returns:
        Table with splits train (486 classes), val (39) and test (178); super-label = script; names such as
        "B DejaVuSerif-Bold".

    Raises:
        ValueError: if hard or seed is out of range.

    Warns:
        GlyphFontWarning: if the clean letters differ from those of the published results.
    """
    number(hard, "hard is the strength of the deformation", low=0, high=1)
    integer(seed, "seed is that of the deformation", low=0, high=2**32 - 1)
    codes, script, split = np.loadtxt(
        Path(__file__).with_name("glyph_codepoints.csv"), dtype=np.int64, delimiter=",", unpack=True
    )
    images, rendered = _rendered(tuple(codes.tolist()), seed, hard)
    if rendered != CLEAN_SHA256:
        warnings.warn(
            f"the fonts of the installed matplotlib draw the glyphs differently (sha256 {rendered[:12]}, expected "
            f"{CLEAN_SHA256[:12]}): results are not comparable with published ones",
            GlyphFontWarning,
            stacklevel=2,
        )
    characters = [chr(code) for code in codes]
    per_class = len(FACES)
    return Table(
        name="glyphs",
        label=torch.arange(len(codes)).repeat_interleave(per_class),
        class_names=tuple(characters),
        split=tuple(SPLITS[s] for s in split for _ in FACES),
        names=tuple(f"{character} {face}" for character in characters for face in FACES),
        channels=1,
        images=images.clone(),
        super_label=torch.from_numpy(script).repeat_interleave(per_class),
        super_names=SCRIPTS,
    )


@lru_cache(maxsize=2)  # 7 MB each; rendering takes seconds, and training, its page and an evaluation use the same ones
def _rendered(codes: tuple[int, ...], seed: int, hard: float) -> tuple[Tensor, str]:
    """(deformed images, hash of the clean images). Do not write to the result: it is cached."""
    clean = render_clean(list(codes))
    return _deform(torch.from_numpy(clean), seed, hard), hashlib.sha256(clean.tobytes()).hexdigest()


def render_clean(codes: list[int]) -> npt.NDArray[np.uint8]:
    """The clean letters, [letter x face, 56, 56] uint8, ink 255 on 0; the typefaces of a letter follow each other.

    Outlines are read from the font files in font units, unhinted, and filled here (non-zero winding rule, 4 samples
    per pixel). The result is the same on any machine, because no font rasteriser is used.
    """
    outlines = [_outlines(face, codes) for face in FACES]
    letters = [outlines[face][i] for i in range(len(codes)) for face in range(len(FACES))]
    # chunks limit the memory of the sample grids
    return np.concatenate([_fill(letters[i : i + 512]) for i in range(0, len(letters), 512)])


def _outlines(face: str, codes: list[int]) -> list[tuple[Floats, npt.NDArray[np.uint8]]]:
    """Per letter the points [point, 2] in font units and the matplotlib path codes [point] of its outline."""
    from matplotlib import __version_info__, ft2font, get_data_path

    path = Path(get_data_path(), "fonts", "ttf", f"{face}.ttf")
    # matplotlib < 3.10 has a plain constant
    flags: Any = getattr(ft2font, "LoadFlags", None)
    unscaled = flags.NO_SCALE if flags else ft2font.LOAD_NO_SCALE  # type: ignore[attr-defined]
    # before 3.11 letters are eight times as wide without this argument; from 3.11 on the argument gives a warning
    narrow: dict[str, Any] = {"hinting_factor": 1} if __version_info__ < (3, 11) else {}
    font: Any = ft2font.FT2Font(str(path), **narrow)
    outlines = []
    for code in codes:
        font.load_char(code, flags=unscaled)
        outlines.append(font.get_path())
    return outlines


def _fill(letters: list[tuple[Floats, npt.NDArray[np.uint8]]]) -> npt.NDArray[np.uint8]:
    """[letter, 56, 56] uint8 coverage of outlines, each centred and scaled to `_INK` of the frame."""
    start, end, letter = _segments(letters)
    side = _FINE * _SUBSAMPLES
    low, high = np.full((len(letters), 2), np.inf), np.full((len(letters), 2), -np.inf)
    for points in (start, end):
        np.minimum.at(low, letter, points)
        np.maximum.at(high, letter, points)
    zoom = (_INK * side / (high - low).max(axis=1))[letter, None]
    centre = ((low + high) / 2)[letter]
    flip = np.array([1.0, -1.0])  # font y goes up
    start, end = ((points - centre) * zoom * flip + side / 2 for points in (start, end))

    # each segment crosses the sample rows whose centre lies between its ends
    first = np.ceil(np.minimum(start[:, 1], end[:, 1]) - 0.5).astype(np.int64)
    last = np.ceil(np.maximum(start[:, 1], end[:, 1]) - 0.5).astype(np.int64)
    crossings = last - first
    segment = np.repeat(np.arange(len(start)), crossings)
    row = np.arange(len(segment)) - np.repeat(np.cumsum(crossings) - crossings, crossings) + first[segment]
    (x0, y0), (x1, y1) = start[segment].T, end[segment].T
    x = x0 + (row + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
    winding = np.zeros((len(letters), side, side), dtype=np.int8)
    np.add.at(
        winding, (letter[segment], row, np.ceil(x - 0.5).astype(np.int64)), np.where(y1 > y0, 1, -1).astype(np.int8)
    )
    inside = (np.cumsum(winding, axis=2, dtype=np.int8, out=winding) != 0).view(np.uint8)
    step = _SUBSAMPLES  # a sum of strided views is several times faster than a sum over reshaped axes
    counts = sum(inside[:, dy::step, dx::step] for dy in range(step) for dx in range(step))
    coverage: npt.NDArray[np.uint8] = (np.asarray(counts, dtype=np.uint16) * 255 // step**2).astype(np.uint8)
    return coverage


def _segments(letters: list[tuple[Floats, npt.NDArray[np.uint8]]]) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Straight segments of outlines: start [segment, 2], end [segment, 2], letter [segment]."""
    points = np.concatenate([vertices for vertices, _ in letters])
    kind = np.concatenate([codes for _, codes in letters])
    letter = np.repeat(np.arange(len(letters)), [len(codes) for _, codes in letters])
    move, line, curve, close = 1, 2, 3, 79  # matplotlib.path.Path's codes; TrueType has no cubic curves
    assert np.isin(kind, (move, line, curve, close)).all()
    opening = np.maximum.accumulate(np.where(kind == move, np.arange(len(kind)), 0))
    points = np.where((kind == close)[:, None], points[opening], points)
    # a curve has two entries, its control point and its end; so every second entry of a run of curves is an end
    in_curve = kind == curve
    run = np.cumsum(in_curve) - np.maximum.accumulate(np.where(in_curve, 0, np.cumsum(in_curve)))
    ends = np.flatnonzero(in_curve & (run % 2 == 0))
    lines = np.flatnonzero((kind == line) | (kind == close))
    t = np.linspace(0, 1, _PIECES + 1)[None, :, None]
    a, control, b = points[ends - 2, None], points[ends - 1, None], points[ends, None]
    curves = (1 - t) ** 2 * a + 2 * t * (1 - t) * control + t**2 * b  # [curve, piece + 1, 2]
    start = np.concatenate([points[lines - 1], curves[:, :-1].reshape(-1, 2)])
    end = np.concatenate([points[lines], curves[:, 1:].reshape(-1, 2)])
    return start, end, np.concatenate([letter[lines], np.repeat(letter[ends], _PIECES)])


def _deform(clean: Tensor, seed: int, hard: float) -> Tensor:
    """[image, 1, 28, 28] uint8 from [image, 56, 56] uint8: the deformations listed in `load_glyphs`."""
    rng = np.random.RandomState(seed)  # numpy guarantees the numbers of RandomState
    count = len(clean)
    u = torch.from_numpy(rng.uniform(-1, 1, (count, 12)).astype(np.float32))
    field = torch.from_numpy(rng.uniform(-1, 1, (count, 2, _CONTROL, _CONTROL)).astype(np.float32))
    noise = torch.from_numpy(rng.standard_normal((count, 1, SIZE, SIZE)).astype(np.float32))
    out = torch.empty((count, 1, SIZE, SIZE), dtype=torch.uint8)
    for rows in torch.split(torch.arange(count), 256):  # chunks fit in the processor's cache
        draw = u[rows]
        ink = warp(
            _stroke(clean[rows, None].float() / 255, hard * draw[:, 0]),
            _FINE,
            angle=draw[:, 1] * hard * math.radians(18),
            scale=1 + draw[:, 2] * hard * 0.22,
            shear=draw[:, 3] * hard * 0.25,
            shift=draw[:, 4:6] * hard * 0.07,
            field=field[rows] * hard * 0.055,
        )
        with_line = (draw[:, 6] + 1) / 2 < hard / 2
        ink = torch.where(with_line.view(-1, 1, 1, 1), torch.maximum(ink, _line(draw[:, 7], draw[:, 8])), ink)
        ground = (hard * 0.2 * (1 + draw[:, 9])).view(-1, 1, 1, 1)
        full = (1 - hard * 0.2 * (1 + draw[:, 10])).view(-1, 1, 1, 1)
        grey = ground + (full - ground) * F.avg_pool2d(ink, _FINE // SIZE)
        out[rows] = ((grey + noise[rows] * hard * 0.1).clamp(0, 1) * 255).round().to(torch.uint8)
    return out


def _stroke(images: Tensor, amount: Tensor) -> Tensor:
    """Wider strokes where amount > 0, thinner where it is < 0; 1 is the full 3 x 3 neighbourhood."""
    sign = torch.where(amount < 0, -1.0, 1.0).view(-1, 1, 1, 1)
    extreme = sign * F.max_pool2d(sign * images, 3, stride=1, padding=1)
    return torch.lerp(images, extreme, amount.abs().view(-1, 1, 1, 1))


def _line(direction: Tensor, offset: Tensor) -> Tensor:
    """[image, 1, 56, 56] a straight line about 1 pixel of the result wide; both arguments in -1 .. 1."""
    at = torch.linspace(-1, 1, _FINE)
    angle = direction.view(-1, 1, 1, 1) * (math.pi / 2)
    distance = torch.cos(angle) * at.view(1, 1, 1, -1) + torch.sin(angle) * at.view(1, 1, -1, 1)
    return (1.5 - (distance - 0.7 * offset.view(-1, 1, 1, 1)).abs() * (_FINE / 2)).clamp(0, 1)
