"""Train a retrieval model and evaluate it before and after. Write a folder with the model, its numbers and report.html.

  rankgrad train                                    the built-in data set glyphs: a few minutes on two CPU cores
  rankgrad train data=folder data.root=PHOTOS       your images: one sub-folder for each class
  rankgrad train data=text data.root=mine.csv       your texts: columns text and label
  rankgrad train loss=pnp loss.alpha=1 seed=1       another loss, with a setting of the loss
  rankgrad train model=timm model.name=resnet50 model.pretrained=true data=folder data.root=PHOTOS
  rankgrad train trainer.devices=4                  each batch is divided between four processes (GPUs or CPU)
  rankgrad train memory=sum                         also compare with the embeddings of earlier batches
  rankgrad train sub_batch=64                       for large batches: embed 64 rows at a time, which needs less memory
  rankgrad train task=scores data=table data.root=rows.csv data.load.label=fraud   a score for each row of a table
  rankgrad train task=search data.root=FOLDER       queries and documents: a search, judged beside BM25
  rankgrad train resume=runs/glyphs-...             continue where a run stopped
  rankgrad train data=folder data.root=PHOTOS init=RUN frozen=true model.head=linear   only a new head, in seconds

Settings are KEY=VALUE, without dashes.
"""

from __future__ import annotations

import argparse

from ..settings.kinds import TASKS
from .training import groups, train_one, train_options

SETTINGS = True  # takes KEY=VALUE settings


def details() -> str:
    """List the groups of settings, below the text of --help."""
    others = [name for name, row in TASKS.items() if row.command == "train" and row.settings != "train"]
    of_others = [f"With task={name}:\n\n{groups(TASKS[name].settings, f'train task={name}')}" for name in others]
    return "\n\n".join([groups("train", "train"), *of_others])


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.usage = "%(prog)s [-h] [--cfg] [-o OUT] [KEY=VALUE ...]"
    train_options(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train a model, or resume a run."""
    train_one(["train"], settings, arguments)
