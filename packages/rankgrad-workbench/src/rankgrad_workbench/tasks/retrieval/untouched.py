"""A pretrained network as it is, written like the model of a run: the baseline that needs no training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad._version import __version__

from ...files.defaults import trained_before
from ...models import build_model, save_weights
from ...models.weights import load_weights
from ...settings import ConfigError, compose, plain
from .building import check_pixels
from .settings import settings_of


def untouched_weights(words: Sequence[str], data: Path, out: Path) -> Path:
    """Write a network to a file like model.pt. A file that is there and holds the same network is kept.

    Args:
        words: settings of the model, such as model=timm model.name=NAME model.weights=FILE.
        data: folder of images, or file of texts, that the network shall embed.
        out: the file.

    Raises:
        ConfigError: the settings name no trained weights.
        ValueError, OSError: the weights cannot be read.
    """
    config = compose(["data=folder" if data.is_dir() else "data=text", f"data.root={data}", *words])
    settings = settings_of(config)
    if not trained_before(settings.model):
        raise ConfigError(
            f"model={settings.model['kind']} has no trained weights: name them (model=timm model.name=NAME "
            "model.weights=FILE, or model=sentence_transformer model.name=FOLDER), or give the folder of a run"
        )
    options = {name: value for name, value in settings.model.items() if name != "kind"}
    model = build_model(settings.model["kind"], **({"in_channels": 3} if data.is_dir() else {}), **options)
    check_pixels(settings, model)
    about = {"data": plain(config.data), "version": __version__}
    if out.exists():
        there, _ = load_weights(out)
        mine, theirs = model.state_dict(), there.state_dict()
        if mine.keys() == theirs.keys() and all(value.equal(theirs[name]) for name, value in mine.items()):
            return out
        raise FileExistsError(f"{out} exists, and holds another network; choose another file with -o")
    return save_weights(out, model, about)


__all__ = ["untouched_weights"]
