"""The small replacement of a full-size experiment: the same grid with a small network on small ink images.

What a table varies (loss and its options, batch size, images per class, memory, image side, embedding size) varies here
too; everything else is that of `recipe=small`. Two kinds of values are scaled to the small network, nothing else is:
image sides by 1/8 (224 -> 28) and embedding sizes by 1/4 (512 -> 128).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad.config import ConfigError

# What every page, table and picture of a stand-in says.
LABELS = {
    name: f"stand-in: small convnet on {data}, not the paper's data; paper's numbers are not comparable"
    for name, data in (("omniglot", "Omniglot"), ("glyphs", "the built-in glyphs"))
}
LABELS["bccd"] = "stand-in: small detector on BCCD, not the paper's data; paper's numbers are not comparable"
WITH_VAL = ("glyphs",)  # those that have classes held out of training already
# Of the runs of a command.
NAMES = {"train": ("omniglot", "glyphs"), "detect train": ("bccd",)}
LOADERS = {"omniglot": "rankgrad_papers.datasets.load_omniglot", "glyphs": "rankgrad.datasets.load_glyphs"}
# All list lengths of all tables, so that tables share their runs.
KS = "evaluation.ks=[1,2,4,5,8,10,16,20,30,32,50,100,1000]"
IMAGE_SCALE, EMBEDDING_SCALE = 8, 4


def base(name: str, root: Path | None) -> list[str]:
    """Settings that all runs of a stand-in have in common.

    Args:
        name: omniglot, glyphs or bccd.
        root: folder of Omniglot or BCCD; None for glyphs.

    Raises:
        ConfigError: a root is needed and missing, or given and not needed.
    """
    if name == "bccd":
        if root is None:
            raise ConfigError("--stand-in bccd reads files: say where with --data-root DIR")
        return ["experiment=bccd", f"data.root={root.absolute()}"]
    common = ["recipe=small", KS, "evaluation.bootstrap=0", "evaluation.clusters=none"]
    common += ["evaluation.every=1", "evaluation.keep_best=test"]
    if name == "glyphs":
        if root is not None:
            raise ConfigError("glyphs are built in and read no files; leave out --data-root")
        return ["data=glyphs", *common]
    if root is None:
        raise ConfigError("--stand-in omniglot reads files: say where with --data-root DIR")
    # as drawn: with turned classes a run takes four times as long
    return ["data=omniglot", f"data.root={root.absolute()}", "data.load.turns=1", *common]


def translate(settings: Sequence[str], name: str) -> list[str]:
    """What a table varies, at the size of the stand-in.

    >>> translate(["loss=pnp", "data.size=256", "model.embedding_size=2048"], "glyphs")
    ['loss=pnp', 'data.train_transform.size=32', 'data.eval_transform.size=32', 'model.embedding_size=512']
    """
    words: list[str] = []
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "data.size":
            side = int(value) // IMAGE_SCALE
            words += [f"data.train_transform.size={side}", f"data.eval_transform.size={side}"]
            words += [f"data.load.size={side}"] if name == "omniglot" else []
        elif key == "data.train":  # VOC 07, or 07 and 12: the smaller list, or all
            words.append(f"{key}={'trainval' if '+' in value else 'train'}")
        elif key == "model.embedding_size":
            words.append(f"{key}={int(value) // EMBEDDING_SCALE}")
        elif key == "++data.load.merge":  # needs to know what it merges the classes of
            words += [setting, f"++data.load.source={LOADERS[name]}"]
        else:
            words.append(setting)
    return words
