"""Glyphs: images of 703 letters of five scripts in twelve typefaces, deformed when loaded. Nothing is downloaded.

A class is a character. Its images show it in the DejaVu typefaces, deformed. Serif, monospaced and italic typefaces
draw some letters in different ways, so that a class has several centres. Training letters are Latin and Cyrillic; test
letters are Greek, Armenian and Georgian. So the classes *and* the scripts of the test are unseen.
`glyph_codepoints.csv` lists the letters (code point, script, split). Look-alikes were removed from this list.

`glyphs.xz` holds the clean letters, [letter x face, 56, 56] uint8, ink 255 on 0; the typefaces of a letter follow each
other. Their outlines were read from the fonts of DejaVu 2.37 in font units, unhinted, centred, scaled, and filled by
the non-zero winding rule with 4 samples per pixel, so that no font rasteriser took part.
"""

from __future__ import annotations

import lzma
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.common.checks import integer, number

from .base import SPLITS, Table
from .transforms import stroke, warp

SCRIPTS = ("Latin", "Cyrillic", "Greek", "Armenian", "Georgian")
FACES = tuple(
    f"DejaVu{family}{style}"
    for family, slanted in (("Sans", "Oblique"), ("Serif", "Italic"), ("SansMono", "Oblique"))
    for style in ("", "-Bold", f"-{slanted}", f"-Bold{slanted}")
)
SIZE = 28  # pixels of an image

_FINE = 2 * SIZE  # letters are deformed at twice the resolution, then averaged, for smooth edges
_CONTROL = 5  # control points of the elastic displacement, per side


def load_glyphs(seed: int = 0, hard: float = 0.6) -> Table:
    """Glyphs, built in: 703 letters of five scripts in 12 typefaces, 8436 grey images of 28 x 28, deformed when loaded.

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
    """
    number(hard, "hard is the strength of the deformation", low=0, high=1)
    integer(seed, "seed is that of the deformation", low=0, high=2**32 - 1)
    codes, script, split = np.loadtxt(
        Path(__file__).with_name("glyph_codepoints.csv"), dtype=np.int64, delimiter=",", unpack=True
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
        images=_deformed(seed, hard).clone(),
        super_label=torch.from_numpy(script).repeat_interleave(per_class),
        super_names=SCRIPTS,
    )


@lru_cache(maxsize=2)  # 7 MB each; training, its page and an evaluation use the same ones
def _deformed(seed: int, hard: float) -> Tensor:
    """The deformed images. Do not write to the result: it is cached."""
    return _deform(clean_letters(), seed, hard)


def clean_letters() -> Tensor:
    """[letter x face, 56, 56] uint8, in the order of the images."""
    content = lzma.decompress(Path(__file__).with_name("glyphs.xz").read_bytes())
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, _FINE, _FINE)


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
            stroke(clean[rows, None].float() / 255, hard * draw[:, 0]),
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


def _line(direction: Tensor, offset: Tensor) -> Tensor:
    """[image, 1, 56, 56] a straight line about 1 pixel of the result wide; both arguments in -1 .. 1."""
    at = torch.linspace(-1, 1, _FINE)
    angle = direction.view(-1, 1, 1, 1) * (math.pi / 2)
    distance = torch.cos(angle) * at.view(1, 1, 1, -1) + torch.sin(angle) * at.view(1, 1, -1, 1)
    return (1.5 - (distance - 0.7 * offset.view(-1, 1, 1, 1)).abs() * (_FINE / 2)).clamp(0, 1)
