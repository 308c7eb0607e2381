"""Detectors by name: torchvision's Faster R-CNN with a ResNet and a feature pyramid, and a small one."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torchvision.models import resnet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.faster_rcnn import FasterRCNN, FastRCNNPredictor, TwoMLPHead
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.misc import FrozenBatchNorm2d

from rankgrad.common.checks import integer, number, one_of
from rankgrad_workbench.models.state_dicts import misfits, read_plain

# Blocks per stage, groups, width per group; and timm's name of ImageNet weights in torchvision's layout.
BACKBONES: dict[str, tuple[list[int], int, int, str]] = {
    "resnet50": ([3, 4, 6, 3], 1, 64, "resnet50.tv_in1k"),
    "resnet101": ([3, 4, 23, 3], 1, 64, "resnet101.tv_in1k"),
    "resnext101_32x4d": ([3, 4, 23, 3], 32, 4, "resnext101_32x4d.gluon_in1k"),
}
LEVELS = 2  # of the pyramid of the small detector
KINDS = ("faster_rcnn", "small")


def build_detector(
    kind: str, num_classes: int, sides: tuple[int, int], *, loaded: bool = False, **options: Any
) -> FasterRCNN:
    """A detector. In evaluation it takes images of any size and returns boxes in their pixels.

    Args:
        kind: faster_rcnn or small, see `faster_rcnn` and `small_rcnn`.
        num_classes: number of classes C, without background.
        sides: shorter and longest side after resizing; images of `data.DetectionSet` already have this size.
        loaded: the caller loads all weights into the model. None are read here, and layers without weights may be
            frozen.
        options: options of that function.

    Raises:
        ValueError: the kind is unknown, or an option is out of range.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown model {kind!r}; known: {', '.join(KINDS)}")
    if kind == "small":
        return small_rcnn(num_classes, sides, **options)
    return faster_rcnn(num_classes, sides, loaded=loaded, **options)


def _boxes(
    num_classes: int,
    sides: tuple[int, int],
    *,
    rois: int,
    proposals: int,
    positive_share: float = 0.25,
    score_threshold: float = 0.0,
    detections: int = 100,
) -> dict[str, Any]:
    """The arguments of torchvision's `FasterRCNN` that all models have.

    Args:
        num_classes: number of classes C, without background.
        sides: shorter and longest side of images.
        rois: proposals per image that are classified in training.
        proposals: largest number of proposals per image and level in evaluation, before and after suppression.
        positive_share: largest fraction of `rois` that may be positive.
        score_threshold: detections with a lower score are dropped. Use 0 for evaluation, because an AP loss does not
            fix the scale of the scores.
        detections: largest number of detections per image.

    Raises:
        ValueError: a number is out of range.
    """
    for name, count in (("rois", rois), ("detections", detections), ("proposals", proposals)):
        integer(count, f"{name} counts boxes", low=1)  # with 0, torchvision trains on nothing and finds nothing
    return {
        "num_classes": num_classes + 1,
        "min_size": sides[0],
        "max_size": sides[1],
        "rpn_pre_nms_top_n_test": proposals,
        "rpn_post_nms_top_n_test": proposals,
        "box_batch_size_per_image": rois,
        "box_positive_fraction": number(positive_share, "positive_share is a fraction", low=0, high=1),
        "box_score_thresh": number(score_threshold, "score_threshold is a fraction", low=0, high=1),
        "box_detections_per_img": detections,
    }


def faster_rcnn(
    num_classes: int,
    sides: tuple[int, int],
    *,
    backbone: str = "resnet50",
    pretrained: bool = False,
    weights: str | None = None,
    norm: str = "frozen",
    trainable_stages: int = 3,
    loaded: bool = False,
    **options: Any,
) -> FasterRCNN:
    """Faster R-CNN of torchvision with a feature pyramid (Ren et al., NeurIPS 2015; Lin et al., CVPR 2017).

    Args:
        num_classes: number of classes C, without background.
        sides: shorter and longest side of images.
        backbone: one of `BACKBONES`.
        pretrained: whether timm downloads ImageNet weights.
        weights: a local file with a state dict in torchvision's names, instead of a download.
        norm: "frozen": batch norm with the statistics of the weights. "batch": trainable batch norm, for training from
            scratch.
        trainable_stages: number of trainable stages of 5, counted from the end; with 3 the stem and the first stage
            are frozen.
        loaded: see `build_detector`.
        options: see `_boxes`; 512 rois and 1000 proposals.

    Raises:
        ValueError: the backbone is unknown, or frozen layers have no weights.
    """
    boxes = _boxes(num_classes, sides, **{"rois": 512, "proposals": 1000, **options})
    if backbone not in BACKBONES:
        raise ValueError(f"unknown backbone {backbone!r}; known: {', '.join(BACKBONES)}")
    one_of(norm, "norm", ("frozen", "batch"))
    integer(trainable_stages, "trainable_stages counts stages", low=0, high=5)
    if not loaded and not pretrained and weights is None and (norm == "frozen" or trainable_stages < 5):
        raise ValueError(
            "frozen layers need weights: model.pretrained=true downloads them, model.weights=FILE reads them. To train "
            "from scratch, train all layers: model.norm=batch model.trainable_stages=5"
        )
    blocks, groups, width, name = BACKBONES[backbone]
    layer = FrozenBatchNorm2d if norm == "frozen" else nn.BatchNorm2d
    body = resnet.ResNet(resnet.Bottleneck, blocks, groups=groups, width_per_group=width, norm_layer=layer)
    if weights is not None and not loaded:
        load_backbone(body, read_plain(Path(weights)), str(weights))
    elif pretrained and not loaded:
        import timm

        load_backbone(body, timm.create_model(name, pretrained=True).state_dict(), name)
    return FasterRCNN(_resnet_fpn_extractor(body, trainable_stages), **boxes)


def load_backbone(body: nn.Module, state: dict[str, Any], source: str) -> None:
    """Load weights with torchvision's names, except those of the classifier.

    Raises:
        ValueError: a tensor is missing or has another shape.
    """
    own = body.state_dict()
    needed = [key for key in own if not key.startswith("fc.") and not key.endswith("num_batches_tracked")]
    state = state.get("state_dict", state) if isinstance(state, dict) else {}
    given = {key: state[key] for key in needed if key in state}
    if wrong := misfits({key: own[key] for key in needed}, given):
        raise ValueError(f"{source} must be a state dict with torchvision's names, but {'; '.join(wrong)}")
    body.load_state_dict(given, strict=False)


class SmallPyramid(nn.Module):
    """Six convolutions with batch norm, down to 1/4, 1/8 and 1/16 of the image, and a pyramid over the last two.

    Args:
        widths: channels at 1/2, 1/4, 1/8 and 1/16.
        channels: channels of every level of the pyramid.
    """

    def __init__(self, widths: Sequence[int] = (16, 32, 64, 96), channels: int = 64) -> None:
        super().__init__()
        half, quarter, eighth, sixteenth = widths
        self.stem = nn.Sequential(_convolution(3, half, 2), _convolution(half, quarter, 2))
        self.eighth = nn.Sequential(_convolution(quarter, eighth, 2), _convolution(eighth, eighth))
        self.sixteenth = nn.Sequential(_convolution(eighth, sixteenth, 2), _convolution(sixteenth, sixteenth))
        self.out_channels = channels
        self.pyramid = FeaturePyramidNetwork([eighth, sixteenth], channels)

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        """Level -> [image, channels, height, width]; "0" is the finest."""
        eighth = self.eighth(self.stem(images))
        pyramid: OrderedDict[str, Tensor] = self.pyramid(OrderedDict({"0": eighth, "1": self.sixteenth(eighth)}))
        return pyramid


def _convolution(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


def small_rcnn(
    num_classes: int,
    sides: tuple[int, int],
    *,
    widths: Sequence[int] = (16, 32, 64, 96),
    channels: int = 64,
    anchors: Sequence[Sequence[int]] = ((18, 40), (70, 120)),
    ratios: Sequence[float] = (1.0,),
    hidden: int = 256,
    cells: int = 5,
    **options: Any,
) -> FasterRCNN:
    """A Faster R-CNN that trains from scratch in minutes on a CPU: torchvision's parts around `SmallPyramid`.

    Args:
        num_classes: number of classes C, without background.
        sides: shorter and longest side of images.
        widths: see `SmallPyramid`.
        channels: see `SmallPyramid`.
        anchors: sides of the anchors in pixels, one list per level, finest first.
        ratios: height : width of the anchors.
        hidden: width of the two layers after a region.
        cells: a region is pooled to cells x cells.
        options: see `_boxes`; 64 rois and 200 proposals, in training twice as many.
    """
    boxes = _boxes(num_classes, sides, **{"rois": 64, "proposals": 200, **options})
    body = SmallPyramid(widths, channels)
    equal = len(anchors) == LEVELS and len({len(sides) for sides in anchors}) == 1
    if not equal or not all(0 < side < math.inf for sides in anchors for side in sides):
        raise ValueError(
            f"anchors must be {LEVELS} lists of equally many sides in pixels, finest level first; got "
            f"{[list(sides) for sides in anchors]}"
        )
    generator = AnchorGenerator(tuple(map(tuple, anchors)), (tuple(ratios),) * LEVELS)
    pool = MultiScaleRoIAlign([str(level) for level in range(LEVELS)], output_size=cells, sampling_ratio=2)
    return FasterRCNN(
        body,
        rpn_anchor_generator=generator,
        box_roi_pool=pool,
        box_head=TwoMLPHead(channels * cells**2, hidden),
        box_predictor=FastRCNNPredictor(hidden, boxes.pop("num_classes")),
        rpn_pre_nms_top_n_train=2 * boxes["rpn_pre_nms_top_n_test"],
        rpn_post_nms_top_n_train=2 * boxes["rpn_post_nms_top_n_test"],
        rpn_batch_size_per_image=128,
        **boxes,
    )


__all__ = ["BACKBONES", "SmallPyramid", "build_detector", "faster_rcnn", "load_backbone", "small_rcnn"]
