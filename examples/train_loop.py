"""A loss in a plain PyTorch loop, and exact numbers before and after: the built-in glyphs, about a minute on one core.

    python examples/train_loop.py --loss smooth_ap --steps 150

Needs rankgrad[train] for the data and the network; the loss and the evaluation need torch and numpy alone.
"""

from __future__ import annotations

import argparse

import torch
from torch.utils.data import DataLoader

from rankgrad import losses
from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import Report, evaluate
from rankgrad_workbench.datasets import ImageSet, load_glyphs
from rankgrad_workbench.datasets.transforms import Collate, InkEval, InkTrain
from rankgrad_workbench.models.convnet import convnet


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", default="smooth_ap", choices=sorted(losses.LOSSES))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)

    table = load_glyphs()
    train, test = table.select("train"), table.select("test")
    sampler = MPerClassBatchSampler(train.label, classes_per_batch=16, samples_per_class=8, seed=arguments.seed)
    batches = DataLoader(ImageSet(train), batch_sampler=sampler, collate_fn=Collate(InkTrain()))
    model, loss = convnet(), losses.find(arguments.loss)()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-3)

    def report() -> Report:
        model.eval()
        images = DataLoader(ImageSet(test), batch_size=512, collate_fn=Collate(InkEval()))
        with torch.inference_mode():
            embeddings = torch.cat([model(batch) for batch, _, _ in images])
        model.train()
        return evaluate(embeddings, test.label, intervals=0)

    before = report()
    step = epoch = 0
    while step < arguments.steps:
        sampler.set_epoch(epoch)
        for images, labels, _ in batches:
            value = loss(model(images), labels)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                counted = loss.stats["counted"].float().mean()
                print(f"step {step}: loss {value.item():.3f}, {100 * counted:.0f} % of the queries counted")
            if step == arguments.steps:
                break
        epoch += 1

    after = report()
    for name in ("R@1", "R@4", "mAP@R", "AP"):
        print(f"{name:>6} {100 * before.values[name]:6.1f} -> {100 * after.values[name]:5.1f}")


if __name__ == "__main__":
    main()
