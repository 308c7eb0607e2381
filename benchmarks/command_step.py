"""A step of `rankgrad train` that fine-tunes a network, compared with a plain loop of torch."""

from __future__ import annotations

import contextlib
import io
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from rankgrad_papers.timing.clocks import alternate
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

NETWORK, SIDE = "tf_efficientnet_lite0", 96
CLASSES, IMAGES = 24, 6
FEW, MORE = 2, 8  # steps of a short training, and those that a long one has in addition
ROUNDS = 5


def command_step(options: Options) -> Result:
    """A step of the command, compared with a plain loop with the same network, images, batches and loss."""
    from rankgrad_workbench.settings import compose
    from rankgrad_workbench.tasks.retrieval import task

    name, more = ("test_resnet", 1) if options.quick else (NETWORK, MORE)
    with tempfile.TemporaryDirectory() as folder:
        words = [*_words(Path(folder), name), f"trainer.accelerator={options.device.type}"]

        def command(steps: int) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as run, contextlib.redirect_stdout(io.StringIO()):
                task.train(compose([*words, f"sampler.batches_per_epoch={steps}", f"out={run}/run"]), quiet=True)

        made = task.build(compose([*words, f"sampler.batches_per_epoch={more}"]), quiet=True)
        plain = partial(_plain, made.module.model, made.module.loss, made.data.train_dataloader(), options.device)
        actions = {"long": partial(command, FEW + more), "short": partial(command, FEW), "plain": plain}
        times = alternate(actions, 1 if options.quick else ROUNDS, "a step of the command")
    steps = [1e3 * (long - short) / more for long, short in zip(times["long"].busy, times["short"].busy, strict=True)]
    loop = [1e3 * busy / more for busy in times["plain"].busy]
    ratio = float(np.median(np.array(steps) / loop))
    rows: list[list[Cell]] = [
        ["plain loop", float(np.median(loop)), 1.0],
        ["rankgrad train", float(np.median(steps)), ratio],
    ]
    about = (
        f"{name}, {SIDE} x {SIDE} pixels, 16 classes x 4 images a batch from JPEG files, batch norm frozen, AdamW. The "
        f"step of the command is the difference of trainings of {FEW + more} and of {FEW} steps, divided by {more}. "
        "Both read, decode and augment the images."
    )
    table = ResultTable("A step of fine-tuning", ("training", "processor ms", "x plain loop"), rows, about)
    return Result([table], [Check("A step of the command over a plain loop", ratio, 1.05)])


def _words(folder: Path, name: str) -> list[str]:
    """Settings of a fine-tuning on made-up photographs, with made-up weights."""
    import timm
    from PIL import Image

    pixels = np.random.default_rng(0)
    for number in range(CLASSES * IMAGES):
        path = folder / "photos" / f"{number // IMAGES:02}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = pixels.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((128, 128), Image.Resampling.BILINEAR).save(path)
    torch.manual_seed(0)
    torch.save(timm.create_model(name).state_dict(), folder / "weights.pth")
    return [
        *("data=folder", f"data.root={folder / 'photos'}", f"data.size={SIDE}", "data.load.test_fraction=0.2"),
        *("model=timm", f"model.name={name}", f"model.weights={folder / 'weights.pth'}"),
        *("trainer.max_epochs=1", "evaluation.bootstrap=0", "evaluation.clusters=none", "evaluation.before=false"),
        *("loggers=[]", "checkpoint_minutes=100"),
    ]


def _plain(
    model: nn.Module, loss: nn.Module, batches: torch.utils.data.DataLoader[object], device: torch.device
) -> None:
    """One pass over the batches, as everybody writes it."""
    model.to(device).train()
    optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), 3e-4)
    for images, labels, ids in batches:
        optimizer.zero_grad()
        loss(model(images.to(device)), labels.to(device), ids=ids.to(device)).backward()
        optimizer.step()
