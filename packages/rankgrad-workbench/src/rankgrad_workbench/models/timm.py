"""Backbones of timm, with pretrained weights from a file or by timm's own download; and how they want their images."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from rankgrad.common.checks import unknown

from ..files import is_archive
from ..files.defaults import trained_before
from .embedding_model import EmbeddingModel, described
from .heads import EmbeddingHead, Head
from .inputs import ImageInput
from .pooling import POOLINGS, ChannelsLastMap, Pooling, TokenPool, Tokens
from .record import read_record
from .state_dicts import check_tensors, check_unpacked, is_state_dict, misfits, one_line, sample, why_unread

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImagePixels:
    """How images were prepared when a network was trained.

    Attributes:
        mean: of each channel, for values 0 .. 1.
        std: standard deviation of each channel.
        size: height and width of an image, pixels.
        fixed: whether the network takes images of this size only.
    """

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    size: int = 224
    fixed: bool = False


@lru_cache(maxsize=16)
def timm_pixels(name: str, weights: Path | None = None) -> ImagePixels | None:
    """How timm's pretrained weights of a model want their images; None: the model or such weights are unknown.

    Args:
        name: timm's name of the model.
        weights: file or folder of the weights. A `config.json` beside them that timm wrote wins.

    >>> timm_pixels("tf_efficientnet_lite0")
    ImagePixels(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=224, fixed=False)
    >>> timm_pixels("no_such_network") is None
    True
    """
    import timm

    if weights is not None and (written := _written(weights)) is not None:
        return written
    try:
        return _as_timm_says(vars(timm.get_pretrained_cfg(name, allow_unregistered=True)))
    except (RuntimeError, TypeError):  # the model, or the weights that its name asks for, are not known
        return None


def pixels_of(model: Mapping[str, Any]) -> ImagePixels:
    """How the network of these settings wants its images. Without a pretrained network: as for ImageNet.

    >>> pixels_of({"kind": "timm", "name": "tf_efficientnet_lite0", "pretrained": True}).mean
    (0.5, 0.5, 0.5)
    """
    weights = None if model.get("weights") is None else Path(model["weights"])
    if model["kind"] == "timm" and trained_before(model):
        return timm_pixels(model["name"], weights) or ImagePixels()
    return (None if weights is None else _recorded(weights)) or ImagePixels()


def _recorded(path: Path) -> ImagePixels | None:
    """Mean and standard deviation in a file of weights of a run; None: it cannot be read, or its images had none."""
    try:
        found = read_record(path)["pixels"]
    except (OSError, ValueError):
        return None
    return ImagePixels(tuple(found["mean"]), tuple(found["std"])) if any(found["mean"]) else None


def _written(weights: Path) -> ImagePixels | None:
    """What timm's config.json in the folder of the weights says; None: there is none."""
    file = (weights if weights.is_dir() else weights.parent) / "config.json"
    try:
        return _as_timm_says(json.loads(file.read_text(encoding="utf-8"))["pretrained_cfg"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _as_timm_says(config: Mapping[str, Any]) -> ImagePixels:
    mean, std = (tuple(map(float, config[name])) for name in ("mean", "std"))
    return ImagePixels(mean, std, int(config["input_size"][-1]), bool(config.get("fixed_input_size")))


SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
COUNTER = "num_batches_tracked"  # of batch norm; older files lack it, and nothing here uses it


def matched(
    expected: Mapping[str, Tensor], given: Mapping[str, Tensor], unused: Sequence[str] = ()
) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file under the names of a network, and one line that says how they were found.

    Names are taken as they are. If they do not fit, the file's names may have one prefix more (`module.`, `encoder.`);
    or all names may differ, if tensor by tensor, in the order of the file, shapes and last parts of the names (weight,
    bias, running_mean ...) are equal. Only what is surplus at the end may then be left out.

    Args:
        expected: state dict of the network.
        given: state dict of the file.
        unused: first parts of the names that are left out: the classifier.

    Returns:
        The state dict to load. If nothing fits, it is what the file has under its own names, and the line is empty.

    >>> import torch
    >>> net = {"a.weight": torch.zeros(2), "b.weight": torch.zeros(3)}
    >>> file = {"module.a.weight": torch.ones(2), "module.b.weight": torch.ones(3), "module.fc.bias": torch.ones(1)}
    >>> state, line = matched(net, file, unused=["fc"])
    >>> [*state], line
    (['a.weight', 'b.weight'], '2 tensors loaded, names without the prefix module.; left out: module.fc.bias')
    """
    wanted = {key: value.shape for key, value in expected.items() if not key.endswith(COUNTER)}
    there = [key for key in given if not key.endswith(COUNTER)]
    first = next(iter(wanted))
    prefixes = sorted((key.removesuffix(first) for key in there if key.endswith(first)), key=len)
    ways = [
        ({key: f"{prefix}{key}" for key in wanted}, prefix and f", names without the prefix {prefix}")
        for prefix in prefixes
    ]
    in_order = dict(zip(wanted, there, strict=False))
    if len(wanted) <= len(there) <= len(wanted) + 2 and not {*wanted} & {*there}:
        if all(key.rpartition(".")[2] == name.rpartition(".")[2] for key, name in in_order.items()):
            ways.append((in_order, ", by their order, as all names differ"))

    def allowed(key: str) -> bool:
        return key.endswith(COUNTER) or key.startswith(tuple(f"{name}." for name in unused))

    for names, how in ways:
        left = [key for key in there if key not in names.values()]
        fits = all(name in given and given[name].shape == wanted[key] for key, name in names.items())
        # without a prefix every surplus tensor is an error; below a prefix the file may hold other networks, too
        if fits and (how or all(map(allowed, left))):
            state = {key: given[names[key]] if key in names else value for key, value in expected.items()}
            rest = f"; left out: {sample(left)}" if left else ""
            return state, f"{len(names)} tensors loaded{how}{rest}"
    return {key: value for key, value in given.items() if not allowed(key) or key in expected}, ""


def weights_file(path: Path) -> Path:
    """The file of weights: `path`, or the one in the folder `path`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the folder has several.
    """
    for suffix in SUFFIXES if path.is_dir() else ():
        found = sorted(path.glob(f"*{suffix}"))
        if len(found) > 1:
            raise ValueError(f"{path} has several files of weights: {sample(f.name for f in found)}. Name one of them")
        if found:
            return found[0]
    if not path.is_file():
        raise FileNotFoundError(f"no weights file at {path}: a {', '.join(SUFFIXES)} file is needed, or its folder")
    return path


@described("timm", "pretrained", "weights")
def timm_model(
    name: str,
    in_channels: int = 3,
    embedding_size: int | None = None,
    *,
    pooling: Pooling = "avg",
    head: Head | None = None,
    pretrained: bool = False,
    weights: str | os.PathLike[str] | None = None,
    freeze_batch_norm: bool = False,
    drop_rate: float = 0.0,
    drop_path_rate: float = 0.0,
    image_size: int | None = None,
) -> EmbeddingModel:
    """Any image backbone of timm by name, with our pooling and head.

    Transformers without a spatial map pool their patch tokens with "avg" or "max". "token" takes the class token, or
    the mean of the class token and the distillation token if there are both, as DeiT does at test time. GeM needs a
    spatial map, whose values are mostly positive; it is not allowed on tokens.

    Args:
        name: timm's name, such as "resnet50" or "deit_small_distilled_patch16_224" (`timm.list_models()`).
        in_channels: channels of an image. timm adapts its own pretrained weights to it; a local file must fit.
        embedding_size: dim of the embeddings; None: the features of the backbone are the embeddings.
        pooling: "avg", "max", "gem" or, for transformers with a class token, "token".
        head: see `EmbeddingHead`.
        pretrained: download timm's weights. Needs the network.
        weights: local .pth, .pt, .bin or .safetensors file of the backbone, or a folder with one: a state dict, or a
            training checkpoint that holds one as `state_dict` or `model` (the averaged copy is preferred). Code in the
            file is not run. The classifier's weights (`fc.*` of a resnet) are left out, because the model has no
            classifier; all others must fit. Their names may differ by a prefix, or altogether if order and shapes
            decide (`matched`); `EmbeddingModel.origin` says what was found.
        freeze_batch_norm: see `EmbeddingModel`.
        drop_rate: dropout inside the backbone.
        drop_path_rate: stochastic depth inside the backbone.
        image_size: side of the images in pixels, for backbones with a fixed size; None: timm's default.

    Raises:
        ValueError: the name or an option is unknown; the backbone has no map or tokens for this pooling; both
            `pretrained` and `weights` are given; the weights do not fit.
        FileNotFoundError: no file at `weights`.
        OSError: `pretrained` weights could not be downloaded.

    >>> import torch
    >>> model = timm_model("resnet18", in_channels=1, embedding_size=64, pooling="gem")
    >>> model(torch.zeros(2, 1, 32, 32)).shape, model.feature_size
    (torch.Size([2, 64]), 512)
    """
    if pooling not in (*POOLINGS, "token"):
        raise ValueError(unknown("pooling", pooling, (*POOLINGS, "token")))
    if pretrained and weights is not None:
        raise ValueError("give pretrained=True (timm's weights) or weights=FILE (yours), not both")
    defaults = _defaults(name)
    # timm has a pool size for backbones that end in a map; the others end in tokens and keep their own last norm
    has_map = defaults is None or defaults.pool_size is not None
    usual = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate, "img_size": image_size}
    options: dict[str, Any] = {name: value for name, value in usual.items() if value}
    options |= {"global_pool": ""} if has_map else {}
    backbone, origin = _backbone(name, in_channels, pretrained, options), ""
    if weights is not None:
        origin = _load_backbone(backbone, name, weights_file(Path(weights)), in_channels)
    pool = _pool(backbone, name, pooling, has_map)
    feature_size = getattr(backbone, "head_hidden_size", None) or backbone.num_features
    model = EmbeddingModel(
        backbone if has_map else Tokens(backbone),
        pool,
        EmbeddingHead(int(cast(int, feature_size)), embedding_size, head),
        ImageInput(in_channels, size=_exact_size(defaults, image_size)),
        freeze_batch_norm,
    )
    model.origin = origin
    wanted = timm_pixels(name, None if weights is None else Path(weights))
    if wanted is not None and (pretrained or weights is not None):
        model.pixel_mean = _of_channels(wanted.mean, in_channels)
        model.pixel_std = _of_channels(wanted.std, in_channels)
    return model


def _defaults(name: str) -> Any:
    """The configuration in timm of the pretrained weights of a model; None if it has none."""
    import timm

    if not timm.is_model(name):
        raise ValueError(unknown("timm model", name, timm.list_models()))
    try:
        return timm.get_pretrained_cfg(name, allow_unregistered=True)
    except RuntimeError:  # the model exists, but the weights that are named after the point do not
        known = timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
        raise ValueError(unknown("timm model", name, known)) from None


def _backbone(name: str, in_channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    """The timm model without its classifier."""
    import timm

    try:
        return timm.create_model(name, pretrained=pretrained, in_chans=in_channels, num_classes=0, **options)
    except TypeError as error:
        raise ValueError(f"{name!r} does not accept all of these options: {options} ({error})") from error
    except Exception as error:  # the network and several libraries each raise their own
        if not pretrained:
            raise
        raise OSError(
            f"timm could not download its weights of {name!r} ({one_line(error)}). Give a local file instead, "
            f"model.weights=FILE (in Python weights=FILE), or train from scratch with model.pretrained=false"
        ) from error


def _pool(backbone: nn.Module, name: str, pooling: str, has_map: bool) -> nn.Module:
    """The pooling of a map; or of tokens, followed by the backbone's `fc_norm`, which is moved from it to here."""
    prefix = int(cast(int, getattr(backbone, "num_prefix_tokens", 0)))
    fitting = ("avg", "max", "gem") if has_map else ("avg", "max", "token") if prefix else ("avg", "max")
    if pooling not in fitting:
        ending = "a map" if has_map else "tokens"
        raise ValueError(f"pooling {pooling!r} is not for {name!r}, which ends in {ending}; use {' or '.join(fitting)}")
    pool = None if pooling == "token" else POOLINGS[pooling]()
    if has_map:
        assert pool is not None
        return ChannelsLastMap(pool) if str(getattr(backbone, "output_fmt", "NCHW")) == "NHWC" else pool
    # moved after the weights were loaded, because its name in a file is fc_norm
    norm = getattr(backbone, "fc_norm", None) or nn.Identity()
    if hasattr(backbone, "fc_norm"):
        backbone.fc_norm = nn.Identity()
    return TokenPool(pool, prefix, 2 if hasattr(backbone, "head_dist") and prefix > 1 else 1, norm)


def _exact_size(defaults: Any, image_size: int | None) -> tuple[int, int] | None:
    """(height, width) if the backbone accepts images of one size only; else None."""
    if defaults is None or not defaults.fixed_input_size:
        return None
    return tuple(defaults.input_size[1:]) if image_size is None else (image_size, image_size)


def _of_channels(values: Sequence[float], channels: int) -> tuple[float, ...]:
    """One value per channel. For another number of channels: the mean, since timm sums or repeats the first filters."""
    return tuple(values) if channels == len(values) else (sum(values) / len(values),) * channels


def _load_backbone(backbone: nn.Module, name: str, path: Path, channels: int) -> str:
    """Load a local weights file into a timm backbone; see the argument `weights` of `timm_model`.

    Returns:
        What was loaded, and what was left out.
    """
    from timm.models import adapt_input_conv, load_state_dict

    if is_archive(path):
        check_unpacked(path)
    try:
        state = load_state_dict(str(path), weights_only=True)
    except Exception as error:  # torch, pickle, zip and safetensors each raise their own
        raise ValueError(f"{path} {why_unread(error)}") from error
    if not is_state_dict(state):
        raise ValueError(f"{path} holds no state dict of a backbone. load_weights reads a file of rankgrad")
    check_tensors(path, state)
    config, expected = cast(Any, backbone).pretrained_cfg, backbone.state_dict()
    classifier, first = config.get("classifier") or (), f"{config.get('first_conv')}.weight"
    unused = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    fitting, found = matched(expected, state, unused)
    if not found and channels == 1 and first in expected:  # weights for colour images have 3 channels there
        fitting, found = matched({**expected, first: expected[first].expand(-1, 3, -1, -1)}, state, unused)
        if found:
            fitting[first] = adapt_input_conv(1, fitting[first])
    if wrong := misfits(expected, fitting):
        raise ValueError(f"{path} does not fit the backbone {name!r}: {'; '.join(wrong)}")
    backbone.load_state_dict(fitting)
    return f"{path.name}: {found}"
