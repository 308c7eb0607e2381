"""Photographs, and a network as a run leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import make_photos

from rankgrad_workbench.models.build import build_model
from rankgrad_workbench.models.weights import save_weights
from rankgrad_workbench.settings import compose, plain


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"), classes=4)


@pytest.fixture(scope="module")
def weights(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained network: coloured tiles of a class are alike to it all the same."""
    torch.manual_seed(0)
    model = build_model("convnet", in_channels=3, widths=(8, 8, 8, 8), embedding_size=8)
    data = plain(compose(["data=folder", f"data.root={photos}", "data.size=32"]).data)
    return save_weights(tmp_path_factory.mktemp("run") / "model.pt", model, {"data": data})
