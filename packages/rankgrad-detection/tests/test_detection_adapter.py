"""An AP loss inside torchvision's detectors: only the classification loss of training changes, only while in use."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankgrad.batches.distributed import GlobalBatch
from rankgrad_detection.adapter import use_ap_loss
from rankgrad_detection.losses import DetectionAPLoss, DetectionSmoothAPLoss, one_hot_targets

detection = pytest.importorskip("torchvision.models.detection")
ops = pytest.importorskip("torchvision.ops")

CLASSES = 3  # foreground


def detector(kind: str = "FasterRCNN") -> nn.Module:
    """A detector of a few thousand weights for images of 64 x 64."""
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone: Any = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.ReLU())
        backbone.out_channels = 8
        options: dict[str, Any] = {
            "num_classes": None,
            "min_size": 64,
            "max_size": 64,
            "rpn_anchor_generator": AnchorGenerator(((16, 32),), ((1.0,),)),
            "rpn_pre_nms_top_n_train": 50,
            "rpn_post_nms_top_n_train": 30,
            "rpn_pre_nms_top_n_test": 50,
            "rpn_post_nms_top_n_test": 30,
            "box_roi_pool": ops.MultiScaleRoIAlign(["0"], 3, 2),
            "box_head": TwoMLPHead(8 * 9, 16),
            "box_predictor": FastRCNNPredictor(16, 1 + CLASSES),
            "box_batch_size_per_image": 24,
            "box_score_thresh": 0.0,
        }
        if kind == "KeypointRCNN":
            options |= {
                "keypoint_roi_pool": ops.MultiScaleRoIAlign(["0"], 4, 2),
                "keypoint_head": KeypointRCNNHeads(8, (4,)),
                "keypoint_predictor": KeypointRCNNPredictor(4, 2),
            }
        if kind == "MaskRCNN":
            options |= {
                "mask_roi_pool": ops.MultiScaleRoIAlign(["0"], 4, 2),
                "mask_head": MaskRCNNHeads(8, (4,), 1),
                "mask_predictor": MaskRCNNPredictor(4, 4, 1 + CLASSES),
            }
        model: nn.Module = getattr(detection, kind)(backbone, **options)
    return model


def data(seed: int = 0) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Two images with two objects each: boxes, masks, key points."""
    g = torch.Generator().manual_seed(seed)
    images = [torch.rand(3, 64, 64, generator=g) for _ in range(2)]
    targets = []
    for _ in images:
        corner = torch.randint(0, 30, (2, 2), generator=g).float()
        boxes = torch.cat([corner, corner + torch.randint(14, 30, (2, 2), generator=g)], 1)
        masks = torch.zeros(2, 64, 64, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
            mask[top:bottom, left:right] = 1
        labels = torch.randint(1, 1 + CLASSES, (2,), generator=g)
        points = torch.cat([boxes.view(2, 2, 2) * 0.9 + 2, torch.ones(2, 2, 1)], 2)
        targets.append({"boxes": boxes, "labels": labels, "masks": masks, "keypoints": points})
    return images, targets


def losses_of(model: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """Losses of a training step; torchvision draws its samples from torch's own generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model.train()(*data(seed))


def detections_of(model: nn.Module) -> list[dict[str, Tensor]]:
    with torch.no_grad():
        return model.eval()(data()[0])


def gradients_of(model: nn.Module, losses: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    sum(losses.values()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def seen_by(model: nn.Module) -> dict[str, Tensor]:
    """What the box head computes in a training step, taken where torchvision computes its own loss from it."""
    from torchvision.models.detection import roi_heads

    found: dict[str, Tensor] = {}
    original = roi_heads.fastrcnn_loss

    def spy(logits, boxes, labels, regression):
        found.update(logits=logits, labels=torch.cat(labels))
        return original(logits, boxes, labels, regression)

    roi_heads.fastrcnn_loss = spy
    try:
        losses_of(model)
    finally:
        roi_heads.fastrcnn_loss = original
    return found


KINDS = pytest.mark.parametrize("kind", ["FasterRCNN", "MaskRCNN", "KeypointRCNN"])


@KINDS
def test_only_the_classification_loss_changes(kind):
    model = detector(kind)
    before = losses_of(model)
    use_ap_loss(model, DetectionAPLoss(), 2.0)
    after = losses_of(model)
    assert list(after) == list(before)
    for name in before:
        assert torch.equal(after[name], before[name]) == (name != "loss_classifier"), name


@KINDS
def test_inference_weights_and_keys_of_the_state_stay_as_they_are(kind):
    model = detector(kind)
    state, found = copy.deepcopy(model.state_dict()), detections_of(model)
    use_ap_loss(model, DetectionAPLoss())
    losses_of(model)
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), state.values(), strict=True))
    assert len(list(model.modules())) == len(list(detector(kind).modules()))
    assert len(found[0]["boxes"]) > 0
    for mine, theirs in zip(detections_of(model), found, strict=True):
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(
    ("score", "scored"),
    [("log_softmax", lambda z: z.log_softmax(1)[:, 1:]), ("logits", lambda z: z[:, 1:])],
)
def test_loss_is_that_of_the_logits_and_labels_torchvision_uses(score: str, scored: Callable[[Tensor], Tensor]):
    model = detector()
    seen = seen_by(model)
    targets = one_hot_targets(seen["labels"], CLASSES, "first")
    assert targets.any(1).sum() >= 4  # the boxes of the objects themselves are among the proposals
    wanted = 3.0 * DetectionAPLoss()(scored(seen["logits"]), targets)
    names = [name for name, _ in model.roi_heads.box_predictor.cls_score.named_parameters()]
    wanted_gradients = torch.autograd.grad(wanted, list(model.roi_heads.box_predictor.cls_score.parameters()))
    use_ap_loss(model, DetectionAPLoss(), 3.0, score=score)
    losses = losses_of(model)
    torch.testing.assert_close(losses["loss_classifier"], wanted)
    gradients = torch.autograd.grad(
        losses["loss_classifier"], list(model.roi_heads.box_predictor.cls_score.parameters())
    )
    assert gradients[0].any() and names == ["weight", "bias"]
    torch.testing.assert_close(gradients, wanted_gradients)


def test_background_column_learns_from_log_softmax_and_not_from_logits():
    for score, learns in (("log_softmax", True), ("logits", False)):
        model = detector()
        use_ap_loss(model, DetectionAPLoss(), score=score)
        losses_of(model)["loss_classifier"].backward()
        assert bool(model.roi_heads.box_predictor.cls_score.weight.grad[0].any()) == learns


def test_removing_gives_cross_entropy_back():
    model = detector()
    before, untouched = losses_of(model), {**vars(model.roi_heads)}
    handle = use_ap_loss(model, DetectionAPLoss())
    losses_of(model)
    handle.remove()
    handle.remove()
    after = losses_of(model)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert "removed" in repr(handle)
    assert set(vars(model.roi_heads)) == set(untouched)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    use_ap_loss(model, DetectionAPLoss())
    assert not torch.equal(losses_of(model)["loss_classifier"], before["loss_classifier"])


def test_a_selection_that_was_replaced_before_comes_back():
    model, called = detector(), []
    original = model.roi_heads.select_training_samples

    def mine(proposals, targets):
        called.append(1)
        return original(proposals, targets)

    model.roi_heads.select_training_samples = mine
    handle = use_ap_loss(model, DetectionAPLoss())
    losses_of(model)
    handle.remove()
    assert called and model.roi_heads.select_training_samples is mine
    handle = use_ap_loss(model, DetectionAPLoss())
    model.roi_heads.select_training_samples = mine
    with pytest.raises(RuntimeError, match="undo that first"):
        handle.remove()


# -------------------------------------------------------------------------------------------------------- the schedule


def test_cross_entropy_alone_comes_first_and_then_fades():
    handle = use_ap_loss(detector(), DetectionAPLoss(), warmup=2, fade=3, keep=0.2)
    shares = []
    for _ in range(8):
        shares.append(handle.share)
        handle._steps += 1
    assert shares == pytest.approx([1, 1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
    sudden = use_ap_loss(detector(), DetectionAPLoss(), warmup=1)
    assert sudden.share == 1
    sudden._steps = 1
    assert sudden.share == 0


def test_warm_up_is_cross_entropy_to_the_last_bit_and_fills_the_memory():
    plain, model = detector(), detector()
    loss = DetectionAPLoss()
    handle = use_ap_loss(model, loss, warmup=2)
    for seed in range(2):
        wanted, got = losses_of(plain, seed), losses_of(model, seed)
        assert all(torch.equal(got[name], wanted[name]) for name in wanted)
        mine, theirs = gradients_of(model, got), gradients_of(plain, wanted)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert loss.memory.count == 2 and int(handle.step) == 2
    assert not torch.equal(losses_of(model, 2)["loss_classifier"], losses_of(plain, 2)["loss_classifier"])


def test_in_between_the_two_losses_are_mixed():
    model = detector()
    handle = use_ap_loss(model, DetectionAPLoss(memory=0), 5.0, keep=0.25)
    value = losses_of(model)["loss_classifier"]
    torch.testing.assert_close(value.detach(), 0.75 * 5 * handle.stats["loss"] + 0.25 * handle.stats["cross_entropy"])
    assert handle.stats["share"] == 0.25 and handle.stats["loss"] > 0
    ours = use_ap_loss(detector(), DetectionAPLoss(memory=0), 5.0, keep=1.0)
    assert ours.share == 1


def test_step_and_memory_are_resumed_with_the_handle_and_not_with_the_model():
    first = detector()
    handle = use_ap_loss(first, DetectionAPLoss(memory=2), warmup=1)
    for seed in range(2):
        losses_of(first, seed)
    second = detector()
    other = use_ap_loss(second, DetectionAPLoss(memory=2), warmup=1)
    second.load_state_dict(first.state_dict())
    other.load_state_dict(handle.state_dict())
    assert other.share == 0 and other.loss.memory.count == 2
    assert torch.equal(losses_of(second, 3)["loss_classifier"], losses_of(first, 3)["loss_classifier"])


def test_handle_may_live_beside_the_model_in_a_module():
    class Learner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = detector()
            self.ap = use_ap_loss(self.model, DetectionAPLoss(memory=1))

    learner = Learner()
    keys = ["loss.memory.scores0", "loss.memory.targets0", "loss.memory.valid0", "loss.memory.written", "step"]
    ours = [key for key in learner.state_dict() if not key.startswith("model.")]
    assert sorted(ours) == [f"ap.{key}" for key in keys]
    assert len([key for key in learner.state_dict() if "cls_score.weight" in key]) == 1
    assert losses_of(learner.double().float().model)["loss_classifier"].requires_grad


def test_measuring_without_gradients_is_no_step_and_enters_no_memory():
    model = detector()
    handle = use_ap_loss(model, DetectionAPLoss(), warmup=1)
    with torch.no_grad():
        losses_of(model)
    assert int(handle.step) == 0 and handle.loss.memory.count == 0 and handle.loss.training
    assert not losses_of(model)["loss_classifier"].isnan() and handle.loss.memory.count == 1


def test_a_copy_of_the_model_trains_with_a_loss_of_its_own():
    model = detector()
    handle = use_ap_loss(model, DetectionAPLoss(memory=2))
    losses_of(model)
    other = copy.deepcopy(model)
    assert torch.equal(losses_of(other, 1)["loss_classifier"], losses_of(copy.deepcopy(model), 1)["loss_classifier"])
    assert handle.loss.memory.count == 1 and int(handle.step) == 1


@pytest.mark.parametrize("loss", [GlobalBatch(DetectionAPLoss()), DetectionSmoothAPLoss(1.0)], ids=["global", "smooth"])
def test_any_loss_of_scores_and_targets_fits(loss):
    model = detector()
    use_ap_loss(model, loss)
    value = losses_of(model)["loss_classifier"]
    value.backward()
    assert value > 0 and model.roi_heads.box_predictor.cls_score.weight.grad.any()


def test_it_trains():
    torch.manual_seed(0)
    model = detector()
    handle = use_ap_loss(model, DetectionAPLoss(random_margin=True, memory=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(25):
        optimizer.zero_grad()
        sum(losses_of(model).values()).backward()
        optimizer.step()
        found.append(handle.stats["loss"].item())
    assert sum(found[-5:]) < 0.7 * sum(found[:5])


def test_half_precision_under_autocast():
    model = detector()
    use_ap_loss(model, DetectionAPLoss())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = losses_of(model)["loss_classifier"]
    assert value.dtype == torch.float32 and value.isfinite()


# ------------------------------------------------------------------------------------------- if it would not be in use


def test_a_predictor_replaced_afterwards_is_noticed():
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor

    model = detector()
    use_ap_loss(model, DetectionAPLoss())
    model.roi_heads.box_predictor = FastRCNNPredictor(16, 1 + CLASSES)
    with pytest.raises(RuntimeError, match="trained without it.*box_predictor.*use_ap_loss again"):
        losses_of(model)


def test_heads_replaced_afterwards_are_noticed():
    model = detector()
    use_ap_loss(model, DetectionAPLoss())
    model.roi_heads = detector().roi_heads
    with pytest.raises(RuntimeError, match="trained without it.*roi_heads"):
        losses_of(model)


def test_a_loss_in_evaluation_mode_is_noticed():
    model = detector()
    handle = use_ap_loss(model, DetectionAPLoss())
    handle.eval()
    with pytest.raises(RuntimeError, match="evaluation mode"):
        losses_of(model)


def test_another_number_of_classes_is_noticed():
    model = detector()
    loss = DetectionAPLoss()
    loss(torch.zeros(4, CLASSES + 1), torch.zeros(4, CLASSES + 1, dtype=torch.bool))
    use_ap_loss(model, loss)
    with pytest.raises(ValueError, match="4 classes .*got 3"):
        losses_of(model)


def test_two_losses_in_one_model_are_refused():
    model = detector()
    use_ap_loss(model, DetectionAPLoss())
    with pytest.raises(RuntimeError, match=r"remove\(\) it"):
        use_ap_loss(model, DetectionAPLoss())


def test_a_model_without_such_heads_is_refused():
    with pytest.raises(TypeError, match="Linear .*RoIHeads.*docs/detection.md"):
        use_ap_loss(nn.Linear(2, 2), DetectionAPLoss())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"warmup": -1}, "warmup"),
        ({"fade": 1.5}, "fade"),
        ({"keep": 1.5}, "keep"),
        ({"weight": -1.0}, "weight"),
        ({"score": "softmax"}, "score"),
    ],
)
def test_wrong_options_leave_the_model_alone(options, words):
    model = detector()
    with pytest.raises(ValueError, match=words):
        use_ap_loss(model, DetectionAPLoss(), **options)
    assert "select_training_samples" not in vars(model.roi_heads)
