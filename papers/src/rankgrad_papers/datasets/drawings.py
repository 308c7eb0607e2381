"""Drawings of several data sets as one set for pretraining: glyphs, icons, and handwritten letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rankgrad.common.checks import renamed
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.datasets.glyphs import SIZE, load_glyphs

from .icons import load_icons
from .omniglot import load_omniglot


def load_drawings(
    icons: str | Path | None = None, omniglot: str | Path | None = None, seed: int = 0, hard: float = 0.6
) -> Table:
    """Glyphs, and the training classes of the icons, of Omniglot, or of both: 28 x 28, grey.

    A network for small drawings can be pretrained on this set and fine-tuned on the set that was left out: with only
    `icons` for Omniglot, with only `omniglot` for the icons. Only the training classes of each set are used for
    training. The val and test classes of the glyphs keep their splits; their scripts are not trained on. So the network
    can be evaluated before the other set is used.

    Args:
        icons: folder of `icons48.npz`, see `load_icons`; None: without icons.
        omniglot: folder of Omniglot, see `load_omniglot`; None: without it.
        seed: of the glyphs, see `load_glyphs`.
        hard: of the glyphs, see `load_glyphs`.

    Returns:
        Table; super-label = the glyphs' script, the icon's first word or Omniglot's alphabet, after the name of the
        set; class names begin with the name of the set, too.

    Raises:
        FileNotFoundError, ValueError: see the loaders.
    """
    parts: list[tuple[str, Table]] = [("glyphs", load_glyphs(seed, hard))]
    if icons is not None:
        with renamed(root="icons"):
            parts.append(("icons", load_icons(icons, SIZE).select("train")))
    if omniglot is not None:
        with renamed(root="omniglot"):
            parts.append(("omniglot", load_omniglot(omniglot, SIZE).select("train")))
    return _joined("drawings: " + ", ".join(name for name, _ in parts), parts)


def _joined(name: str, parts: Sequence[tuple[str, Table]]) -> Table:
    """The rows of all parts, with separate classes and super-labels; those without a row are left out."""
    label, names, super_label, super_names, images = [], list[str](), [], list[str](), []
    for part, table in parts:
        assert table.images is not None and table.super_label is not None
        classes, numbers = torch.unique(table.label, return_inverse=True)
        label.append(len(names) + numbers)
        names += [f"{part}: {table.class_names[i]}" for i in classes.tolist()]
        supers, numbers = torch.unique(table.super_label, return_inverse=True)
        super_label.append(len(super_names) + numbers)
        super_names += [f"{part}: {table.super_names[i]}" for i in supers.tolist()]
        images.append(table.images)
    return Table(
        name=name,
        label=torch.cat(label),
        class_names=tuple(names),
        split=tuple(split for _, table in parts for split in table.split),
        names=tuple(f"{part}: {row}" for part, table in parts for row in table.names),
        channels=1,
        images=torch.cat(images),
        super_label=torch.cat(super_label),
        super_names=tuple(super_names),
    )
