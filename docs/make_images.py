"""Makes the pictures of README.md and docs/losses.md.

    python docs/make_images.py steps            docs/images/steps.png: the steps, and the gradient they leave
    python docs/make_images.py gallery RUN      docs/images/gallery.png: the same queries before and after a run

`gallery` builds the untrained network again from the run's configuration and seed, and refuses to go on if its R@1 is
not the one in the run's before.json. Queries are drawn by seed, not chosen.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).with_name("images")
RIGHT, WRONG, GREY = "#087a57", "#c2410c", "#5d626b"  # green solid and orange dashed, as in report.html


def steps(path: Path) -> Path:
    """Values and slopes of the steps against the score difference."""
    import matplotlib

    matplotlib.use("Agg")
    import torch
    from matplotlib import pyplot as plt

    from rankgrad import relaxations

    diff = torch.linspace(-0.06, 0.14, 801)
    shown = [  # the widest first: H^- is the sigmoid below 0
        (r"H$^-$ (SupAP, ROADMAP)", relaxations.SupStep(), "#f0a37c", "-", 5),
        ("sigmoid, tau 0.01 (Smooth-AP, PNP)", relaxations.Sigmoid(), "#1f5fbf", "-", 2),
        ("exp(t / 0.05)", relaxations.Exponential(0.05), RIGHT, "--", 2),
        ("H: exact, no gradient", relaxations.Heaviside(), GREY, ":", 2),
    ]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
    for name, step, colour, style, width in shown:
        slope = step.slope(diff)
        slope = torch.zeros_like(diff) if slope is None else slope
        left.plot(diff, step(diff), color=colour, linestyle=style, linewidth=width, label=name)
        right.plot(diff, slope, color=colour, linestyle=style, linewidth=width)
    left.set(ylim=(-0.1, 5), title="how much an item counts as standing above")
    right.set(ylim=(-3, 110), title="what its gradient is")
    right.annotate(
        "the sigmoid has let go:\nmisranked by far, left alone",
        (0.06, 1),
        (0.07, 40),
        arrowprops={"arrowstyle": "->", "color": GREY},
        color=GREY,
        fontsize=9,
    )
    left.legend(frameon=False, fontsize=9, loc="upper left")
    for axis in (left, right):
        axis.axvline(0, color="#dfdfda", zorder=0)
        axis.set_xticks([-0.05, 0, 0.05, 0.1])
        axis.set_xlabel("score of the other item − score of the relevant item")
        axis.spines[["top", "right"]].set_visible(False)
    return _save(figure, path, dpi=110)


def gallery(run_folder: Path, path: Path, queries: int = 6, k: int = 8, seed: int = 0) -> Path:
    """The k nearest images of some test queries, for the untrained network and for the trained one."""
    import matplotlib

    matplotlib.use("Agg")
    import lightning
    import numpy as np
    import torch
    from matplotlib import pyplot as plt

    from rankgrad import evaluation, search
    from rankgrad_workbench import settings as config
    from rankgrad_workbench import training
    from rankgrad_workbench.runs.folder import Run
    from rankgrad_workbench.tasks.retrieval import task as run

    finished = Run(run_folder)
    settings = config.load(finished.config)
    lightning.seed_everything(settings.seed, verbose=False)
    task = run.build(settings)
    model, test = task.model, task.rows.test
    before = training.embed(model, test, config.make(settings.data.eval_transform, slot="transform"))
    recorded = evaluation.Report.from_json(finished.before).values["R@1"]
    found = evaluation.evaluate(before, test.label, metrics=["R@1"], intervals=0).values["R@1"]
    if abs(found - recorded) > 2e-3:  # one query of 2136 is 5e-4: near ties may fall differently with other threads
        raise SystemExit(f"this is not the network that the run began with: R@1 {found:.4f}, recorded {recorded:.4f}")
    with np.load(finished.folder / "embeddings.npz") as file:
        after = torch.from_numpy(file["embeddings"])

    drawn, ids = (
        torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))[:queries],
        torch.arange(len(test)),
    )
    assert test.images is not None
    images = test.images
    units = [torch.nn.functional.normalize(embeddings, dim=1) for embeddings in (before, after)]
    sides = [search.topk(unit, unit, k, ids=ids, ref_ids=ids, rows=drawn)[1] for unit in units]
    columns = 2 * k + 2  # query, before, gap, after
    figure, axes = plt.subplots(queries, columns, figsize=(0.58 * columns, 0.62 * queries + 0.45))
    for axis in axes.flat:
        axis.set_axis_off()
    for row, query in enumerate(drawn.tolist()):
        for side, nearest in enumerate(sides):
            start = side * (k + 2)
            right = (test.label[nearest[row]] == test.label[query]).tolist()
            tiles = [(images[item], RIGHT if ok else WRONG) for item, ok in zip(nearest[row], right, strict=True)]
            if side == 0:
                tiles.insert(0, (images[query], ""))
            for column, (image, colour) in enumerate(tiles, start):
                axis = axes[row, column]
                axis.set_axis_on()
                axis.imshow(255 - image[0], cmap="gray", vmin=0, vmax=255)
                axis.set(xticks=[], yticks=[])
                for spine in axis.spines.values():
                    spine.set(color=colour or "#ffffff", linewidth=2.2, linestyle="--" if colour == WRONG else "-")
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=1 - 0.42 / figure.get_figheight(), wspace=0.1)
    for text, first, last in (("query", 0, 0), ("before", 1, k), ("after", k + 2, columns - 1)):
        boxes = axes[0, first].get_position(), axes[0, last].get_position()
        figure.text((boxes[0].x0 + boxes[1].x1) / 2, boxes[0].y1 + 0.02, text, ha="center", fontsize=12, color=GREY)
    return _save(figure, path, dpi=90)


def _save(figure: Any, path: Path, dpi: int) -> Path:
    """As a PNG of 64 colours: a quarter of the bytes, and no difference one could see."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi)
    Image.open(buffer).convert("RGB").quantize(64).save(path, optimize=True)
    return path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("steps")
    commands.add_parser("gallery").add_argument("run", type=Path)
    arguments = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    if arguments.what == "steps":
        print(steps(IMAGES / "steps.png"))
    else:
        print(gallery(arguments.run, IMAGES / "gallery.png"))


if __name__ == "__main__":
    main()
