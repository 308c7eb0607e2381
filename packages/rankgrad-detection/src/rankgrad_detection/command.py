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
from inspect import getdoc
from pathlib import Path
from typing import Any

from rankgrad_workbench.cli.arguments import add_trust, require
from rankgrad_workbench.cli.training import compare_losses, groups, several_options, train_one, train_options

SETTINGS = True  # train and compare take KEY=VALUE settings


def details() -> str:
    """List the groups of settings, below the text of --help."""
    return groups("detect", "detect train")


def numbers(text: str) -> list[float]:
    """The numbers of a list with commas."""
    return [*map(float, text.split(","))]


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    of: dict[str, argparse.ArgumentParser] = {}
    for name, (act, task) in ACTIONS.items():
        more: dict[str, Any] = {} if act in (_train, _compare) else {"settings_allowed": False}
        text = parser.description if act is _train else getdoc(act)
        how = argparse.RawDescriptionHelpFormatter
        of[name] = actions.add_parser(name, help=task, description=text, formatter_class=how, allow_abbrev=False)
        of[name].set_defaults(act=act, **more)
    of["train"].usage = "%(prog)s [-h] [--cfg] [-o OUT] [KEY=VALUE ...]"
    train_options(of["train"])
    of["compare"].usage = "%(prog)s [-h] [-o OUT] [-j JOBS] loss=A,B [seeds=0,1,2] [KEY=VALUE ...]"
    several_options(of["compare"], "runs and the table", "runs/detect-compare")
    add = of["evaluate"].add_argument
    add("run_folder", type=Path, metavar="RUN", help="folder of a run")
    add("--root", type=Path, help="folder of other data with the same classes (default: the run's)")
    add("--split", help="part of the data: test, val, 2007/test, ... (default: the run's test part)")
    add("--ious", type=numbers, help="IoU thresholds, comma-separated (default: the run's)")
    pixel = "add one pixel to widths and heights, as some toolkits do"
    add("--inclusive", action="store_true", default=None, help=pixel)
    add("-o", "--out", type=Path, help="json file to write the numbers to")
    add("--page", type=Path, help="html file to write, with curves and pictures")
    add_trust(of["evaluate"])
    add = of["check"].add_argument
    add("--root", type=Path, required=True, help="VOCdevkit, or a folder like VOC2007, of COCO or YOLO")
    add("--format", default="auto", help="voc, coco or yolo (default: what the folder looks like)")
    add("--images", action="store_true", help="also decode every image (slow)")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Run the chosen action."""
    arguments.act(arguments, settings)


def _train(arguments: argparse.Namespace, settings: list[str]) -> None:
    train_one(["detect", "train"], settings, arguments)


def _compare(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train a detector with several losses on the same data, with the same seeds and budget. Write a table of its AP.

      rankgrad detect compare loss=cross_entropy,ap seeds=0,1,2,3,4 experiment=bccd data.root=DIR -j 2 -o runs/cells
      rankgrad detect compare loss=ap,ap:margin=0,ap:memory=0,ap:ranking.warmup=50 experiment=bccd data.root=DIR

    Settings of one loss follow its name after a colon. Join several with "+": loss=ap:margin=0+memory=0. A setting that
    does not belong to the loss needs its full name: loss=ap:ranking.warmup=50. All other settings are those of
    `rankgrad detect train`. Every run gets them. The first loss is subtracted from each other one, seed by seed.
    If the command is interrupted, run it again and it continues. Finished runs are kept.
    To train on other machines: launcher=submitit (SLURM) or launcher=ray, see docs/distributed.md.
    """
    compare_losses(arguments, settings, "detect train")


def _evaluate(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Measure the average precision of a run's model."""
    from rankgrad_workbench.cli.outputs import check_output
    from rankgrad_workbench.files import write_text
    from rankgrad_workbench.settings import packages

    from .run import evaluate_run

    require("the folder of a finished run of a detector", arguments.run_folder)
    for path, option in ((arguments.out, "-o"), (arguments.page, "--page")):
        check_output(path, option)
    if arguments.out and arguments.page and arguments.out.absolute() == arguments.page.absolute():
        raise ValueError(f"-o and --page are one file, {arguments.out}: give two")
    given = {name: getattr(arguments, name) for name in ("root", "split", "ious", "inclusive", "page")}
    report = evaluate_run(arguments.run_folder, **given, progress=True, trust=packages(arguments.trust))
    print(report)
    if arguments.out:
        write_text(arguments.out, report.to_json())
    for path in filter(None, (arguments.out, arguments.page)):
        print(f"wrote {path}")


def _check(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Check that a folder of images with boxes is complete."""
    from .check import inspect_boxes

    require("a folder of images with boxes", arguments.root)
    observations = inspect_boxes(arguments.root, arguments.images, arguments.format)
    print(observations)
    if observations.wrong:
        raise ValueError(f"{arguments.root} has {observations.wrong} problem(s), listed above")


ACTIONS = {
    "train": (_train, "train a detector, or resume a run"),
    "compare": (_compare, "train and compare several losses"),
    "evaluate": (_evaluate, "measure the average precision of a run's model"),
    "check": (_check, "check that a folder of images with boxes is complete"),
}
