"""Stand-ins: small replacements of full-size experiments, with the same grid and a small network on small ink images.

A stand-in varies the same settings as the table (loss and its options, batch size, images per class, memory, image
side, embedding size); all others are those of `recipe=small`. Only two kinds of values are scaled to the small network:
image sides by 1/8 (224 -> 28) and embedding sizes by 1/4 (512 -> 128).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad.config import ConfigError

# Label on every page, table and picture of a stand-in.
LABELS = {
    name: f"stand-in: small convnet on {data}, not the paper's data; paper's numbers are not comparable"
    for name, data in (("omniglot", "Omniglot"), ("glyphs", "the built-in glyphs"))
}
LABELS["bccd"] = "stand-in: small detector on BCCD, not the paper's data; paper's numbers are not comparable"
WITH_VAL = ("glyphs",)  # stand-ins with a split val
# Command of the runs -> its stand-ins.
NAMES = {"train": ("omniglot", "glyphs"), "detect train": ("bccd",)}
LOADERS = {"omniglot": "rankgrad_papers.datasets.load_omniglot", "glyphs": "rankgrad.datasets.load_glyphs"}
# All K of R@K in all tables, so that tables share their runs.
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
            raise ConfigError("--stand-in bccd reads files: give their folder with --data-root DIR")
        return ["experiment=bccd", f"data.root={root.absolute()}"]
    common = ["recipe=small", KS, "evaluation.bootstrap=0", "evaluation.clusters=none"]
    common += ["evaluation.every=1", "evaluation.keep_best=test"]
    if name == "glyphs":
        if root is not None:
            raise ConfigError("glyphs are built in and read no files: remove --data-root")
        return ["data=glyphs", *common]
    if root is None:
        raise ConfigError("--stand-in omniglot reads files: give their folder with --data-root DIR")
    # without turned classes, with which a run takes four times as long
    return ["data=omniglot", f"data.root={root.absolute()}", "data.load.turns=1", *common]


def translate(settings: Sequence[str], name: str) -> list[str]:
    """The settings that a table varies, scaled to the stand-in.

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
        elif key == "data.train":  # VOC 07 becomes the smaller list, VOC 07 and 12 all images
            words.append(f"{key}={'trainval' if '+' in value else 'train'}")
        elif key == "model.embedding_size":
            words.append(f"{key}={int(value) // EMBEDDING_SCALE}")
        elif key == "++data.load.merge":  # also needs the loader whose classes are merged
            words += [setting, f"++data.load.source={LOADERS[name]}"]
        else:
            words.append(setting)
    return words
