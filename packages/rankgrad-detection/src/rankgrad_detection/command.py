"""Train a detector with a ranking loss, measure its average precision as Pascal VOC and COCO do, or check the data.

  rankgrad detect train data.root=DIR                       images with boxes, as VOC, COCO or YOLO have them
  rankgrad detect train data.root=DIR loss=cross_entropy    the same detector with cross-entropy
  rankgrad detect compare loss=cross_entropy,ap,ap:ranking.warmup=50 seeds=0,1,2 data.root=DIR
  rankgrad detect train resume=runs/voc_folder-...          continue where a run stopped
  rankgrad detect evaluate RUN --split val --ious 0.5,0.6,0.7
  rankgrad detect check --root VOCdevkit --images

Settings are KEY=VALUE, without dashes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rankgrad_workbench.cli.arguments import add_trust
from rankgrad_workbench.cli.training import compare_losses, groups, several_options, train_one, train_options

SETTINGS = True  # train and compare take KEY=VALUE settings

COMPARE = """\
Train a detector with several losses on the same data, with the same seeds and budget. Write a table of its AP.

  rankgrad detect compare loss=cross_entropy,ap seeds=0,1,2,3,4 experiment=bccd data.root=DIR -j 2 -o runs/cells
  rankgrad detect compare loss=ap,ap:margin=0,ap:memory=0,ap:ranking.warmup=50 experiment=bccd data.root=DIR

Settings of one loss follow its name after a colon. Join several with "+": loss=ap:margin=0+memory=0. A setting that
does not belong to the loss needs its full name: loss=ap:ranking.warmup=50. All other settings are those of
`rankgrad detect train`. Every run gets them. The first loss is subtracted from each other one, seed by seed.
If the command is interrupted, run it again and it continues. Finished runs are kept.
To train on other machines: launcher=submitit (SLURM) or launcher=ray, see docs/distributed.md.
"""


def details() -> str:
    """List the groups of settings, below the text of --help."""
    return groups("detect", "detect train")


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    train = actions.add_parser(
        "train", help="train a detector, or resume a run", description=parser.description, **text
    )
    train.usage = "%(prog)s [-h] [--cfg] [-o OUT] [KEY=VALUE ...]"
    train_options(train)
    several = actions.add_parser("compare", help="train and compare several losses", description=COMPARE, **text)
    several.usage = "%(prog)s [-h] [-o OUT] [-j JOBS] loss=A,B [seeds=0,1,2] [KEY=VALUE ...]"
    several_options(several, "runs and the table", "runs/detect-compare")
    task = "measure the average precision of a run's model"
    measure = actions.add_parser("evaluate", help=task, description=f"{task.capitalize()}.", allow_abbrev=False)
    measure.add_argument("run_folder", type=Path, metavar="RUN", help="folder of a run")
    measure.add_argument("--root", type=Path, help="folder of other data with the same classes (default: the run's)")
    measure.add_argument("--split", help="part of the data: test, val, 2007/test, ... (default: the run's test part)")
    measure.add_argument("--ious", help="IoU thresholds, comma-separated (default: the run's)")
    pixel = "add one pixel to widths and heights, as some toolkits do"
    measure.add_argument("--inclusive", action="store_true", default=None, help=pixel)
    measure.add_argument("-o", "--out", type=Path, help="json file to write the numbers to")
    measure.add_argument("--page", type=Path, help="html file to write, with curves and pictures")
    add_trust(measure)
    task = "check that a folder of images with boxes is complete"
    check = actions.add_parser("check", help=task, description=f"{task.capitalize()}.", allow_abbrev=False)
    check.add_argument("--root", type=Path, required=True, help="VOCdevkit, or a folder like VOC2007, of COCO or YOLO")
    check.add_argument("--format", default="auto", help="voc, coco or yolo (default: what the folder looks like)")
    check.add_argument("--images", action="store_true", help="also decode every image (slow)")
    for action in (measure, check):
        action.set_defaults(settings_allowed=False)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Run the chosen action."""
    if arguments.action == "train":
        train_one(["detect", "train"], settings, arguments)
    elif arguments.action == "compare":
        compare_losses(arguments, settings, "detect train")
    else:
        {"evaluate": _evaluate, "check": _check}[arguments.action](arguments)


def _evaluate(arguments: argparse.Namespace) -> None:
    from rankgrad_workbench.cli.outputs import check_output
    from rankgrad_workbench.files import write_text
    from rankgrad_workbench.settings import packages

    from .run import evaluate_run

    for path, option in ((arguments.out, "-o"), (arguments.page, "--page")):
        check_output(path, option)
    if arguments.out and arguments.page and arguments.out.absolute() == arguments.page.absolute():
        raise ValueError(f"-o and --page are both {arguments.out}; give two files")
    try:
        ious = None if arguments.ious is None else [float(iou) for iou in arguments.ious.split(",")]
    except ValueError:
        raise ValueError(f"--ious takes numbers such as 0.5,0.75; got {arguments.ious!r}") from None
    report = evaluate_run(
        arguments.run_folder,
        root=arguments.root,
        split=arguments.split,
        ious=ious,
        inclusive=arguments.inclusive,
        page=arguments.page,
        progress=True,
        trust=packages(arguments.trust),
    )
    print(report)
    if arguments.out:
        write_text(arguments.out, report.to_json())
    for path in (arguments.out, arguments.page):
        if path:
            print(f"wrote {path}")


def _check(arguments: argparse.Namespace) -> None:
    from rankgrad_workbench.cli.arguments import require

    from .check import inspect_boxes

    require("a folder of images with boxes", arguments.root)
    observations = inspect_boxes(arguments.root, arguments.images, arguments.format)
    print(observations)
    if observations.wrong:
        raise ValueError(f"{arguments.root} has {observations.wrong} problem(s), listed above")
