"""What the commands that train share: settings, processes, the command that resumes a run, and several runs."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ..settings.kinds import of_command, of_settings


def groups(tree: str, command: str) -> str:
    """The groups of settings, for the help of the command that trains."""
    from ..settings import options

    lines = [f"  {group + '=':12}{', '.join(options(group, tree))}" for group in of_settings(tree).groups]
    head = "groups of settings, and the options of each group:"
    return "\n".join([head, *lines, "", f"To print all settings of a run: rankgrad {command} --cfg [KEY=VALUE ...]"])


def train_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that trains one run."""
    parser.add_argument("--cfg", action="store_true", help="print the settings and stop")
    parser.add_argument("-o", "--out", help="folder of the run, as out=OUT (default: a new folder in runs/)")


def train_one(words: list[str], settings: list[str], arguments: argparse.Namespace) -> None:
    """Run `rankgrad train`, or the training command of a plug-in.

    Importing the module that trains takes seconds, so it comes last: wrong settings and paths are reported before. A
    process that only starts others does not import it.

    Args:
        words: words of the command.
        settings: KEY=VALUE; with resume= the settings to change. `task=` chooses what is trained.
        arguments: of `train_options`.
    """
    from ..runs import launch, signals
    from ..runs.folder import Run, existing
    from ..settings import check_paths, compose, load, packages

    if arguments.out is not None:
        settings = [*settings, f"out={arguments.out}"]
    folder = next((Path(word.removeprefix("resume=")) for word in settings if word.startswith("resume=")), None)
    of_run = [] if folder is None else [f"task={Run(folder.expanduser()).kind}"]
    row = of_command(" ".join(words), [*settings, *of_run])
    # a resumed run has its own settings
    composed = [word for word in settings if folder is None or word.startswith(("resume=", "trust=", "task="))]
    changes = [word for word in settings if word not in composed]
    config = compose([*composed, *(["data.root=."] if folder and row.settings != "train" else [])], row.settings)
    if arguments.cfg:
        from .settings import commented

        print(commented(config, settings, row.settings), end="")
        return
    if folder is None:
        check_paths(config)
    settled, saved = config, None if folder is None else existing(folder.expanduser()).config
    if not launch.started():
        if saved is not None:
            from ..training.runner import changed

            settled = changed(load(saved, packages(config.trust)), changes)
        if "trainer" in settled and launch.wanted(settled) > 1:
            sys.exit(launch.launch(settled, [*words, *settings]))
    task: Any = import_module(row.trains)
    where: list[Path] = []  # the folder of the run, as soon as there is one
    trusted = [word for word in settings if word.startswith("trust=")]

    def again() -> list[str]:
        # a run that could not write its first files has removed its folder
        return [*words, f"resume={where[0]}", *trusted] if where and Run(where[0]).config.exists() else []

    with signals.continue_with(again):
        finished = task.train(config, changes=changes, started=where.append)
    if signals.speaks():
        print(task.summary(finished))


def several_options(parser: argparse.ArgumentParser, holds: str, folder: str) -> None:
    """Add -o and -j to a command that trains several runs.

    Args:
        parser: of the command.
        holds: what the folder of -o holds.
        folder: the default of -o.
    """
    what = f"folder of the {holds} (default: {folder})"
    parser.add_argument("-o", "--out", type=Path, default=Path(folder), help=what)
    what = "runs at the same time; they share the CPU cores (default: 1)"
    parser.add_argument("-j", "--jobs", type=int, default=1, help=what)


def compare_losses(arguments: argparse.Namespace, settings: list[str], command: str) -> None:
    """Train several losses by `rankgrad COMMAND`, print their table and write their page."""
    from ..report.writing import write_comparison
    from ..runs.compare import compare, folders

    print(compare(settings, arguments.out, arguments.jobs, command))
    print(f"report: {write_comparison(arguments.out / 'compare.html', folders(settings, arguments.out))}")
