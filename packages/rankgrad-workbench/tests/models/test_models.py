from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad_workbench.models.build import MODELS, build_model, vector_model
from rankgrad_workbench.models.convnet import convnet
from rankgrad_workbench.models.embedding_model import EmbeddingModel, extract_features, parameter_groups
from rankgrad_workbench.models.heads import EmbeddingHead
from rankgrad_workbench.models.inputs import ImageInput
from rankgrad_workbench.models.pooling import AvgPool, GeM, MaxPool
from rankgrad_workbench.models.timm import timm_model
from rankgrad_workbench.models.weights import load_weights, save_weights

pytest.importorskip("timm", reason="timm backbones need the extra rankgrad[train]")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def images(count: int = 4, channels: int = 1, size: int = 28) -> Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(1))


def small() -> EmbeddingModel:
    return convnet(widths=(4, 6, 8), embedding_size=5)


# ------------------------------------------------------------------------------------------------------- convnet


def test_convnet_is_conv_norm_relu_maxpool_per_width_then_one_linear_map():
    model = convnet(widths=(3, 4), embedding_size=2, in_channels=2).eval()
    x = images(channels=2, size=8)
    maps = x
    for block in model.backbone:
        conv, norm = block[0], block[1]
        maps = F.conv2d(maps, conv.weight, padding=1)
        maps = (maps - norm.running_mean[:, None, None]) / (norm.running_var[:, None, None] + norm.eps).sqrt()
        maps = F.max_pool2d(maps.clamp(min=0), 2)
    linear = model.head.layers
    torch.testing.assert_close(model(x), maps.mean((2, 3)) @ linear.weight.T + linear.bias)


def test_a_residual_convnet_has_strides_for_pooling_and_adds_a_change_to_every_map_but_the_first():
    model = convnet(widths=(3, 4), embedding_size=2, in_channels=2, residual=True)
    model(images(channels=2, size=8))  # running means and variances that are not those of the start
    model.eval()

    def normed(maps, conv, norm):
        maps = F.conv2d(maps, conv.weight, stride=conv.stride, padding=1)
        return (
            norm.weight[:, None, None]
            * (maps - norm.running_mean[:, None, None])
            / (norm.running_var[:, None, None] + norm.eps).sqrt()
            + norm.bias[:, None, None]
        )

    first, second = model.backbone
    assert len(first) == 3 and first[0].stride == second[0].stride == (2, 2)
    x = images(channels=2, size=8)
    maps = normed(normed(x, first[0], first[1]).clamp(min=0), second[0], second[1]).clamp(min=0)
    assert maps.shape[-2:] == (2, 2)
    change = second[3].change
    maps = (maps + normed(normed(maps, change[0], change[1]).clamp(min=0), change[3], change[4])).clamp(min=0)
    linear = model.head.layers
    torch.testing.assert_close(model(x), maps.mean((2, 3)) @ linear.weight.T + linear.bias)
    assert model.config["residual"]


def test_published_convnet_sizes_have_the_published_number_of_parameters():
    assert sum(p.numel() for p in convnet(widths=(16, 32, 64, 128)).parameters()) == 113_904  # "114 k"
    assert convnet().features(images()).shape == (4, 128)


def test_a_convnet_begins_with_the_backbone_of_a_file_and_a_head_of_its_own(tmp_path):
    earlier = small()
    earlier.train()(images())  # running means and variances that are not those of the start
    earlier.pixel_mean = (0.25,)
    save_weights(tmp_path / "model.pt", earlier)
    begun = convnet(
        widths=(4, 6, 8), embedding_size=7, head="layer_norm", weights=tmp_path / "model.pt", freeze_batch_norm=True
    )
    for name, value in earlier.backbone.state_dict().items():
        torch.testing.assert_close(begun.backbone.state_dict()[name], value, rtol=0, atol=0)
    assert begun(images()).shape == (4, 7) and begun.pixel_mean == (0.25,) and "weights" not in begun.config
    save_weights(tmp_path / "again.pt", begun)  # needs no second file to be read
    again, _ = load_weights(tmp_path / "again.pt")
    assert torch.equal(again.eval()(images()), begun.eval()(images()))


def test_a_backbone_of_another_shape_is_refused_by_its_layers(tmp_path):
    save_weights(tmp_path / "model.pt", small())
    with pytest.raises(ValueError, match=r"0.0.weight is \[4, 1, 3, 3\] .*\[5, 1,"):
        convnet(widths=(5, 6, 8), weights=tmp_path / "model.pt")
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="was not written by"):
        convnet(weights=tmp_path / "other.pt")
    with pytest.raises(FileNotFoundError, match="no weights file at"):
        convnet(weights=tmp_path / "none.pt")


@pytest.mark.parametrize("size", [(28, 28), (16, 16), (105, 105), (29, 61)])
def test_convnet_takes_any_size_from_sixteen_pixels_up(size):
    assert convnet()(torch.rand(2, 1, *size)).shape == (2, 128)


def test_every_parameter_of_the_convnet_gets_a_gradient():
    model = convnet(pooling="gem", widths=(4, 6), embedding_size=5)
    model(images()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_embeddings_are_the_head_of_the_features_and_are_not_normalised():
    model = small().eval()
    features = model.features(images())
    torch.testing.assert_close(model.embed(features), model(images()))
    assert features.shape == (4, model.feature_size)
    assert not torch.allclose(model(images()).norm(dim=1), torch.ones(4))


def test_memory_order_of_the_images_does_not_change_the_embeddings():
    model = convnet(in_channels=3, widths=(4, 6), embedding_size=5).eval()
    x = images(channels=3)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), model(x))
    assert model.backbone[0][0].weight.is_contiguous(memory_format=torch.channels_last)


def test_same_seed_builds_the_same_model():
    first = small()
    torch.manual_seed(0)
    second = small()
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (torch.rand(2, 3, 28, 28), ValueError, r"\[image, 1, height, width\]; got \[2, 3, 28, 28\]"),
        (torch.rand(1, 28, 28), ValueError, r"got \[1, 28, 28\]"),
        (torch.zeros(2, 1, 28, 28, dtype=torch.uint8), TypeError, "float images; got torch.uint8"),
        (torch.rand(2, 1, 15, 28), ValueError, "at least 16 x 16; got 15 x 28"),
    ],
)
def test_images_the_model_cannot_take_are_refused_by_name(bad, error, message):
    with pytest.raises(error, match=message):
        convnet()(bad)


# ---------------------------------------------------------------------------------------------- pooling and heads


def test_gem_is_the_mean_at_one_and_tends_to_the_maximum():
    maps = images(2, 3, 5)
    torch.testing.assert_close(GeM(p=1.0)(maps), AvgPool()(maps))
    torch.testing.assert_close(GeM(p=2000.0)(maps), MaxPool()(maps), rtol=2e-3, atol=0)


def test_gem_equals_its_formula_in_value_and_gradient():
    maps = (images(2, 3, 4) * 3 - 1).requires_grad_()  # negative values included
    pool = GeM(p=2.5)
    pool(maps).square().sum().backward()
    again = maps.detach().double().requires_grad_()
    p = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    value = again.clamp(min=1e-6).pow(p).mean((2, 3)).pow(1 / p)
    value.square().sum().backward()
    torch.testing.assert_close(pool(maps).double(), value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(maps.grad.double(), again.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(pool.p.grad.double(), p.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 6e4])
def test_gem_stays_finite_in_half_precision_at_every_scale(dtype, scale):
    maps = (images(2, 3, 4) * scale).to(dtype).requires_grad_()
    pool = GeM(p=10.0)
    pooled = pool(maps)
    pooled.float().sum().backward()
    assert pooled.dtype == dtype and pooled.isfinite().all()
    assert maps.grad.isfinite().all() and pool.p.grad.isfinite()
    expected = maps.detach().double().clamp(min=1e-6).pow(10).mean((2, 3)).pow(0.1)
    torch.testing.assert_close(pooled.double(), expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    ("head", "sizes"), [("linear", (7, 3)), ("layer_norm", (7, 3)), ("mlp", (7, 3)), ("none", (7, None))]
)
def test_heads_give_the_embedding_size_they_promise(head, sizes):
    module = EmbeddingHead(*sizes, head=head)
    assert module(torch.randn(4, 7)).shape == (4, module.embedding_size) == (4, sizes[1] or 7)


def test_layer_norm_head_ignores_scale_and_shift_of_the_features():
    head, features = EmbeddingHead(6, 3, head="layer_norm"), torch.randn(4, 6) * 10
    torch.testing.assert_close(head(features * 3 + 5), head(features), rtol=1e-4, atol=1e-4)
    assert [name for name, _ in head.named_parameters()] == ["layers.1.weight", "layers.1.bias"]


def test_head_none_refuses_to_change_the_size_and_says_what_to_do():
    with pytest.raises(ValueError, match="512 features; .*=128.*embedding_size=None"):
        EmbeddingHead(512, 128, head="none")


def test_bare_features_come_back_from_a_model_without_head():
    model = convnet(widths=(4, 6), embedding_size=None, head="none").eval()
    torch.testing.assert_close(model(images()), model.features(images()))
    assert model.embedding_size == 6


# ----------------------------------------------------------------------------------------------------------- timm


@pytest.mark.parametrize("pooling", ["avg", "max", "gem"])
def test_resnet_pools_its_map_as_asked_and_learns(pooling):
    model = timm_model("resnet18", in_channels=1, embedding_size=7, pooling=pooling)
    x = images(2, 1, 33)
    maps = model.eval().backbone(x)
    expected = {"avg": maps.mean((2, 3)), "max": maps.amax((2, 3)), "gem": maps.clamp(min=1e-6).pow(3).mean((2, 3))}
    torch.testing.assert_close(model.features(x), expected[pooling] ** (1 / 3 if pooling == "gem" else 1))
    model.train()(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_average_pooling_agrees_with_timm_on_the_same_weights():
    import timm

    torch.manual_seed(0)
    theirs = timm.create_model("resnet18", pretrained=False, num_classes=0, in_chans=3).eval()
    ours = timm_model("resnet18", pooling="avg", head="none", embedding_size=None).eval()
    ours.backbone.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(images(2, 3, 48)), theirs(images(2, 3, 48)))


def test_distilled_deit_gives_the_mean_of_its_two_tokens_or_of_its_patches():
    name, x = "deit_tiny_distilled_patch16_224", images(1, 3, 32)
    torch.manual_seed(0)
    model = timm_model(name, pooling="token", head="none", embedding_size=None, image_size=32).eval()
    torch.manual_seed(0)
    patches = timm_model(name, pooling="avg", head="none", embedding_size=None, image_size=32).eval()
    tokens = model.backbone(x)
    assert tokens.shape == (1, 2 + 4, 192)
    torch.testing.assert_close(model(x), tokens[:, :2].mean(1))
    torch.testing.assert_close(patches(x), tokens[:, 2:].mean(1))
    # what timm itself gives at test time for the same weights
    torch.testing.assert_close(model(x), model.backbone.model(x))


def test_norm_that_follows_the_pooling_of_a_transformer_stays_behind_it():
    import timm

    torch.manual_seed(0)
    theirs = timm.create_model("eva02_tiny_patch14_224", pretrained=False, num_classes=0, img_size=28).eval()
    torch.manual_seed(0)
    ours = timm_model("eva02_tiny_patch14_224", image_size=28, head="none", embedding_size=None).eval()
    torch.testing.assert_close(ours(images(1, 3, 28)), theirs(images(1, 3, 28)))


def test_transformer_learns_and_refuses_other_sizes_with_a_way_out():
    model = timm_model("vit_tiny_patch16_224", embedding_size=8, pooling="token", image_size=32)
    model(images(2, 3, 32)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ValueError, match=r"\(32, 32\) pixels; got \(48, 48\).*image_size=48"):
        model(images(2, 3, 48))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet_18"}, "unknown timm model 'resnet_18'; did you mean 'resnet18'"),
        ({"name": "resnet10t.evil"}, "unknown timm model 'resnet10t.evil'; did you mean 'resnet10t.c3_in1k'"),
        ({"name": "hf-hub:evil/model"}, "unknown timm model 'hf-hub:evil/model'"),
        (
            {"name": "vit_tiny_patch16_224", "pooling": "gem"},
            "'gem' is not for .*in tokens; use avg or max or token",
        ),
        ({"name": "resnet18", "pooling": "token"}, "'token' is not for 'resnet18', which ends in a map"),
        ({"name": "mixer_s32_224", "pooling": "token"}, "ends in tokens; use avg or max$"),
        ({"name": "resnet18", "pooling": "mean"}, "unknown pooling 'mean'"),
        ({"name": "resnet18", "head": "lineal"}, "unknown head 'lineal'; did you mean 'linear'"),
        ({"name": "resnet18", "image_size": 64}, "does not accept all of these options: .*'img_size': 64"),
        ({"name": "resnet18", "pretrained": True, "weights": "w.pth"}, "not both"),
        ({"name": "resnet18", "head": "none"}, "keeps the 512 features|embedding_size=None"),
    ],
)
def test_options_a_backbone_cannot_have_are_refused_with_advice(options, message):
    options = {"embedding_size": 100, **options}
    with pytest.raises(ValueError, match=message):
        timm_model(**options)


def write_backbone(path: Path, wrap=lambda state: state, **changes: Tensor | None) -> dict[str, Tensor]:
    import timm

    torch.manual_seed(5)
    state = timm.create_model("resnet18", pretrained=False, num_classes=10).state_dict()
    for key, value in changes.items():
        state.pop(key.replace("__", "."), None)
        if value is not None:
            state[key.replace("__", ".")] = value
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save(wrap(state), path)
    return state


@pytest.mark.parametrize(
    ("file", "wrap"),
    [
        ("w.pth", lambda state: state),
        ("w.safetensors", lambda state: state),
        ("w.pt", lambda state: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}),
    ],
)
def test_local_weights_are_loaded_without_their_classifier(tmp_path, file, wrap):
    state = write_backbone(tmp_path / file, wrap)
    model = timm_model("resnet18", weights=tmp_path / file, embedding_size=3)
    loaded = model.backbone.state_dict()
    assert set(state) - set(loaded) == {"fc.weight", "fc.bias"}
    assert all(torch.equal(loaded[key], state[key]) for key in loaded)
    assert model.pixel_mean == (0.485, 0.456, 0.406)  # what such weights expect


def test_weights_that_do_not_fit_name_the_layers_and_how_many(tmp_path):
    write_backbone(tmp_path / "w.pth", conv1__weight=torch.zeros(64, 1, 7, 7), bn1__bias=None, odd=torch.zeros(1))
    with pytest.raises(ValueError) as caught:
        timm_model("resnet18", weights=tmp_path / "w.pth")
    text = str(caught.value)
    assert "conv1.weight is [64, 1, 7, 7] in the file and [64, 3, 7, 7] in the model" in text
    assert "1 missing in the file: bn1.bias" in text and "1 unknown to the model: odd" in text


@pytest.mark.parametrize("values", [torch.zeros(64, device="meta"), torch.zeros(64, dtype=torch.complex64)])
def test_weights_without_real_values_are_named(tmp_path, values):
    write_backbone(tmp_path / "w.pth", bn1__bias=values)
    with pytest.raises(ValueError, match="bn1.bias without all of its values|or complex ones, in the file: bn1.bias"):
        timm_model("resnet18", weights=tmp_path / "w.pth")


def test_a_weights_file_with_a_flipped_bit_is_refused(tmp_path):
    write_backbone(tmp_path / "w.pth")
    content = bytearray((tmp_path / "w.pth").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "w.pth").write_bytes(content)
    with pytest.raises(ValueError, match="w.pth is damaged: the checksum of its part .* is wrong"):
        timm_model("resnet18", weights=tmp_path / "w.pth")


def test_many_missing_weights_are_counted_and_the_first_few_listed(tmp_path):
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="119 missing .*bn1.weight, .*running_var"):
        timm_model("resnet18", weights=tmp_path / "w.pth")


def test_files_that_are_no_weights_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights file at"):
        timm_model("resnet18", weights=tmp_path / "none.pth")
    (tmp_path / "text.pth").write_text("not a checkpoint")
    with pytest.raises(ValueError, match="not a weights file that can be read safely"):
        timm_model("resnet18", weights=tmp_path / "text.pth")
    torch.save({"epoch": 3, "note": "no state"}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="holds no state dict of a backbone"):
        timm_model("resnet18", weights=tmp_path / "other.pth")


def test_weights_file_that_would_run_code_is_not_unpickled(tmp_path):
    class Touch:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"state_dict": Touch()}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="read safely"):
        timm_model("resnet18", weights=tmp_path / "w.pth")
    with pytest.raises(ValueError, match="wants to run .*mkdir.*Nothing was run") as error:
        load_weights(tmp_path / "w.pth")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


# -------------------------------------------------------------------------------------------- batch norm, groups


@pytest.mark.parametrize("build", [small, lambda: timm_model("resnet18", in_channels=1, embedding_size=4)])
@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_statistics_through_training(build, frozen):
    model = build()
    model.freeze_batch_norm = frozen
    model.train()
    before = copy.deepcopy(dict(model.named_buffers()))
    model(images(size=32)).square().sum().backward()
    changed = [name for name, value in model.named_buffers() if not torch.equal(value, before[name])]
    assert bool(changed) is not frozen
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(norm.training is not frozen and norm.weight.grad is not None for norm in norms)
    assert model.training and model.head.training and not model.eval().training


def test_freezing_is_an_argument_and_takes_effect_at_once():
    model = convnet(widths=(4, 6), freeze_batch_norm=True)
    assert model.training and not any(m.training for m in model.modules() if isinstance(m, nn.BatchNorm2d))


def test_every_trainable_parameter_is_in_exactly_one_group():
    model = convnet(widths=(4, 6), pooling="gem")
    model.backbone[0][0].weight.requires_grad_(False)
    groups = parameter_groups(model, 0.1, 10, weight_decay=0.5)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    rate = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert rate[id(model.head.layers.weight)] == (1.0, 0.5)
    assert rate[id(model.backbone[1][0].weight)] == (0.1, 0.5)
    assert rate[id(model.pool.p)] == rate[id(model.head.layers.bias)] == (1.0, 0.5)
    assert len({group["name"] for group in groups}) == len(groups) == 2
    torch.optim.AdamW(groups).step()


# -------------------------------------------------------------------------------------------------- frozen features


def test_cached_features_are_those_of_the_model_in_eval_mode_and_in_order():
    model, x, y = small(), images(7), torch.arange(7) % 3
    features = extract_features(model, [(x[:4], y[:4]), (x[4:], y[4:])])
    assert model.training  # restored
    torch.testing.assert_close(features, model.eval().features(x))
    assert features.dtype == torch.float32 and not features.requires_grad


def test_head_trained_on_cached_features_returns_to_its_model():
    model = small()
    labels = torch.arange(6) % 2
    features = extract_features(model, [(images(6), labels)])
    head = EmbeddingHead(model.feature_size, 3, head="layer_norm")
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    first = last = 0.0
    for step in range(20):
        value = F.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        first, last = (value.item() if step == 0 else first), value.item()
    assert last < first
    whole = model.eval().with_head(head)
    torch.testing.assert_close(whole(images(6)), head(features))
    assert whole.embedding_size == 3 and not whole.training and model.embedding_size == 5


def test_features_that_do_not_fit_or_are_absent_are_errors():
    with pytest.raises(ValueError, match="the loader gave no batch"):
        extract_features(small(), [])
    with pytest.raises(ValueError, match=r"\[row, 7\]; got \[4, 8\]"):
        EmbeddingHead(7, 3)(torch.randn(4, 8))


# ---------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "build",
    [
        small,
        lambda: convnet(widths=(4, 6), pooling="gem", head="none", embedding_size=None, freeze_batch_norm=True),
        lambda: timm_model("resnet18", in_channels=1, embedding_size=4, head="layer_norm", pooling="max"),
        lambda: small().with_head(EmbeddingHead(8, 2, head="layer_norm")),
    ],
)
def test_model_comes_back_from_its_weights_file_with_the_same_embeddings(tmp_path, build):
    model = build()
    with torch.no_grad():
        model.train()(images(size=32))  # moves the running statistics, so that they count too
    settings = {"data": {"name": "glyphs", "classes": ["a", "b"]}, "lr": 0.1, "seed": 3, "note": None}
    path = save_weights(tmp_path / "best.pt", model, settings)
    again, found = load_weights(path)
    assert found == settings and again.config == model.config and not again.training
    torch.testing.assert_close(again(images(size=32)), model.eval()(images(size=32)), rtol=0, atol=0)
    assert again.freeze_batch_norm == model.freeze_batch_norm and again.pixel_mean == model.pixel_mean
    assert [p.name for p in tmp_path.iterdir()] == ["best.pt"]


def test_weights_from_a_file_keep_their_normalisation_when_saved_again(tmp_path):
    write_backbone(tmp_path / "w.pth")
    model = timm_model("resnet18", weights=tmp_path / "w.pth", embedding_size=3)
    (tmp_path / "m.pt").touch()
    save_weights(tmp_path / "m.pt", model)
    (tmp_path / "w.pth").unlink()  # the file of the backbone is not needed any more
    again, config = load_weights(tmp_path / "m.pt")
    assert config == {} and again.pixel_std == (0.229, 0.224, 0.225)


def test_weights_file_needs_nothing_of_this_library_to_be_read(tmp_path):
    save_weights(tmp_path / "m.pt", small())
    record = torch.load(tmp_path / "m.pt", weights_only=True)
    assert record["model"]["widths"] == [4, 6, 8] and "head.layers.weight" in record["state_dict"]


def test_checkpoint_of_another_embedding_size_is_refused_by_layer(tmp_path):
    save_weights(tmp_path / "m.pt", convnet(embedding_size=512))
    with pytest.raises(ValueError) as caught:
        load_weights(tmp_path / "m.pt", convnet(embedding_size=128))
    text = str(caught.value)
    assert "head.layers.weight is [512, 128] in the file and [128, 128] in the model" in text


def test_checkpoint_of_another_backbone_is_refused_and_leaves_the_model_alone(tmp_path):
    save_weights(tmp_path / "m.pt", convnet(widths=(4, 6), embedding_size=5))
    model = small()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="missing .*backbone.2.0.weight"):
        load_weights(tmp_path / "m.pt", model)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_loading_into_a_model_keeps_its_mode_and_returns_the_same_object(tmp_path):
    source = small()
    save_weights(tmp_path / "m.pt", source)
    torch.manual_seed(9)
    target = small().train()
    loaded, _ = load_weights(tmp_path / "m.pt", target)
    assert loaded is target and target.training
    torch.testing.assert_close(target.state_dict(), source.state_dict(), rtol=0, atol=0)


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    save_weights(tmp_path / "m.pt", small(), {"epoch": 1})

    def die(*names: object, **at: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        save_weights(tmp_path / "m.pt", small(), {"epoch": 2})
    monkeypatch.undo()
    assert load_weights(tmp_path / "m.pt")[1] == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt"]


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_damaged_and_foreign_files_are_clear_errors(tmp_path, content):
    path = tmp_path / "m.pt"
    if content is None:
        save_weights(path, small())
        path.write_bytes(path.read_bytes()[:-200])  # cut off, as by a full disk
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="not a weights file .*damaged"):
        load_weights(path)
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="rankgrad_workbench.models.save_weights"):
        load_weights(path)
    with pytest.raises(FileNotFoundError, match="no weights file at"):
        load_weights(tmp_path / "none.pt")


@pytest.mark.parametrize("extra", [{"a": {"b": [torch.zeros(1)]}}, {"a": Path("x")}, {"a": {(1, 2): 2}}])
def test_config_that_could_not_be_read_back_is_refused_before_writing(tmp_path, extra):
    with pytest.raises(TypeError, match="config may hold only"):
        save_weights(tmp_path / "m.pt", small(), extra)
    assert not list(tmp_path.iterdir())


def test_model_that_does_not_know_its_arguments_cannot_be_saved(tmp_path):
    model = EmbeddingModel(nn.Identity(), AvgPool(), EmbeddingHead(1, 2), ImageInput(1))
    assert model(images()).shape == (4, 2)
    with pytest.raises(ValueError, match="the model has no config"):
        save_weights(tmp_path / "m.pt", model)
    with pytest.raises(FileNotFoundError, match="none"):
        save_weights(tmp_path / "none" / "m.pt", small())


def test_models_are_built_by_name_and_misspelt_ones_get_a_suggestion():
    assert set(MODELS) == {"convnet", "timm", "ngrams", "sentence_transformer", "vectors"}
    assert build_model("timm", name="resnet18", embedding_size=3).embedding_size == 3
    with pytest.raises(ValueError, match="'convet'; did you mean 'convnet'"):
        build_model("convet")
    with pytest.raises(ValueError, match="'embeding_size'; .*'embedding_size'"):
        build_model("timm", name="resnet18", embeding_size=3)
    with pytest.raises(ValueError, match="model 'timm' needs name"):
        build_model("timm")
    for bad in ({"widths": ()}, {"widths": (0,)}, {"in_channels": 0}):
        with pytest.raises(ValueError, match="in_channels|widths"):
            convnet(**bad)
    with pytest.raises(ValueError, match="embedding_size is None .*an integer >= 1"):
        convnet(embedding_size=0)


def test_an_mlp_head_begins_as_its_affine_map_and_bends():
    vectors = torch.randn(5, 6)
    model = vector_model(6, head="mlp")
    assert torch.equal(model(vectors), vectors)  # the identity, as every head on vectors
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):  # the hidden layer's own weights move once the last layer has
        optimizer.zero_grad()
        model(vectors).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        assert not torch.allclose(model(-vectors), -model(vectors) + 2 * model(torch.zeros(1, 6)), atol=1e-3)
    built = build_model("vectors", width=6, head="mlp")
    built.load_state_dict(model.state_dict())
    assert torch.equal(built(vectors), model(vectors))
