"""Stand-ins: small replacements of full-size experiments, with the same grid and a small network on small images.

A stand-in varies the same settings as the table (loss and its options, batch size, images per class, memory, image
side, embedding size); all others are those of `recipe=small`, for photographs of `recipe=finetune_photographs`. Only
these values are scaled to the small network: image sides by 1/8 (224 -> 28), for photographs by 2/7 (224 -> 64), and
embedding sizes by 1/4 (512 -> 128). A batch of photographs has at most 29 classes, so all larger batches of a table are
the same batch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad_workbench.settings import ConfigError

# Data of a stand-in, and its network.
DATA = {
    "omniglot": ("Omniglot", "small convnet"),
    "glyphs": ("the built-in glyphs", "small convnet"),
    "photographs": ("photographs of 64 pixels", "small ResNet"),
    "bccd": ("BCCD", "small detector"),
}
WITH_VAL = ("glyphs",)  # stand-ins with a split val
# Command of the runs -> its stand-ins.
NAMES = {"train": ("omniglot", "glyphs", "photographs"), "detect train": ("bccd",)}
LOADERS = {
    "omniglot": "rankgrad_papers.datasets.load_omniglot",
    "glyphs": "rankgrad_workbench.datasets.load_glyphs",
    "photographs": "rankgrad_papers.datasets.load_photographs",
}
# All K of R@K in all tables, so that tables share their runs.
KS = "evaluation.ks=[1,2,4,5,8,10,16,20,30,32,50,100,1000]"
IMAGE_SCALE, EMBEDDING_SCALE = 8, 4
PHOTO_SCALE = 3.5
MOST_CLASSES = 29  # of photographs


def label(name: str, own: Sequence[str] = ()) -> str:
    """The line on every page, table and picture of a stand-in.

    Args:
        name: omniglot, photographs, glyphs or bccd.
        own: KEY=VALUE settings of the user, who may have chosen another network.

    >>> label("photographs", ["model=timm", "model.name=resnet18"])
    "stand-in: resnet18 on photographs of 64 pixels, not the paper's data; paper's numbers are not comparable"
    """
    data, network = DATA[name]
    chosen = dict(setting.partition("=")[::2] for setting in own)
    network = chosen.get("model.name", chosen.get("model", network))
    return f"stand-in: {network} on {data}, not the paper's data; paper's numbers are not comparable"


def base(name: str, root: Path | None) -> list[str]:
    """Settings that all runs of a stand-in have in common.

    Args:
        name: omniglot, photographs, glyphs or bccd.
        root: folder of Omniglot, the photographs or BCCD; None for glyphs.

    Raises:
        ConfigError: a root is needed and missing, or given and not needed.
    """
    if name == "bccd":
        if root is None:
            raise ConfigError("--stand-in bccd reads files: give their folder with --data-root DIR")
        return ["experiment=bccd", f"data.root={root.absolute()}"]
    recipe = "finetune_photographs" if name == "photographs" else "small"
    common = [f"recipe={recipe}", KS, "evaluation.bootstrap=0", "evaluation.clusters=none"]
    common += ["evaluation.every=1", "evaluation.keep_best=test"]
    if name == "glyphs":
        if root is not None:
            raise ConfigError("glyphs are built in and read no files: remove --data-root")
        return ["data=glyphs", *common]
    if root is None:
        raise ConfigError(f"--stand-in {name} reads files: give their folder with --data-root DIR")
    if name == "photographs":
        return ["data=photographs", f"data.root={root.absolute()}", *common]
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
            if name == "photographs":
                words.append(f"data.size={round(int(value) / PHOTO_SCALE)}")
                continue
            side = int(value) // IMAGE_SCALE
            words += [f"data.train_transform.size={side}", f"data.eval_transform.size={side}"]
            words += [f"data.load.size={side}"] if name == "omniglot" else []
        elif key == "sampler.classes_per_batch" and name == "photographs":
            words.append(f"{key}={min(int(value), MOST_CLASSES)}")
        elif key == "data.train":  # VOC 07 becomes the smaller list, VOC 07 and 12 all images
            words.append(f"{key}={'trainval' if '+' in value else 'train'}")
        elif key == "model.embedding_size":
            words.append(f"{key}={int(value) // EMBEDDING_SCALE}")
        elif key == "++data.load.merge":  # the setting also needs the loader that merges classes
            words += [setting, f"++data.load.source={LOADERS[name]}"]
        else:
            words.append(setting)
    return words
