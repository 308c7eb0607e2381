"""What the commands that train share: settings, processes, the command that resumes a run, and several runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from rankgrad.common.extras import missing

from ..settings.kinds import of_command, of_settings

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from ..runs.folder import Run


class TrainingModule(Protocol):
    """A module that trains, such as `training.retrieval`."""

    def train(self, config: DictConfig, *, changes: list[str], started: Callable[[Path], object]) -> Run:
        """See `training.runner.train`."""

    def summary(self, run: Run) -> str:
        """The text that is printed when a run is finished."""


def groups(tree: str, command: str) -> str:
    """The groups of settings, for the help of the command that trains."""
    try:
        from ..settings import options
    except ModuleNotFoundError as error:  # evaluation works without the extras
        return missing(str(error.name))
    lines = [f"  {group + '=':12}{', '.join(options(group, tree))}" for group in of_settings(tree).groups]
    head = "groups of settings, and the options of each group:"
    return "\n".join([head, *lines, "", f"To print all settings of a run: rankgrad {command} --cfg [KEY=VALUE ...]"])


def train_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that trains one run."""
    parser.add_argument("--cfg", action="store_true", help="print the settings and stop")
    parser.add_argument("-o", "--out", help="folder of the run, as out=OUT (default: a new folder in runs/)")


def with_out(arguments: argparse.Namespace, settings: list[str]) -> list[str]:
    """The settings, with the folder of -o.

    Raises:
        ValueError: out= is given, too.
    """
    if arguments.out is None:
        return settings
    given = next((setting for setting in settings if setting.startswith("out=")), None)
    if given is not None:
        raise ValueError(f"-o {arguments.out} and {given} both name the folder of the run; give one of them")
    return [*settings, f"out={arguments.out}"]


def train_one(words: list[str], settings: list[str], cfg: bool) -> None:
    """Run `rankgrad train`, or the training command of a plug-in.

    Importing the module that trains takes seconds, so it comes last: wrong settings and paths are reported before. A
    process that only starts others does not import it.

    Args:
        words: words of the command.
        settings: KEY=VALUE; with resume= the settings to change. `task=` chooses what is trained.
        cfg: print the settings and stop.
    """
    from ..runs import launch, signals
    from ..runs.folder import Run, existing
    from ..settings import check_paths, compose, load, packages

    resumed = [setting for setting in settings if setting.startswith(("resume=", "trust=", "task="))]
    resumed = resumed if any(setting.startswith("resume=") for setting in resumed) else []
    changes = [setting for setting in settings if resumed and setting not in resumed]
    folders = [Path(setting.removeprefix("resume=")) for setting in resumed if setting.startswith("resume=")]
    row = of_command(" ".join(words), [*settings, *(f"task={Run(folder.expanduser()).kind}" for folder in folders)])
    tree = row.settings
    # a resumed run has its own settings
    config = compose([*resumed, "data.root=."] if resumed and tree != "train" else resumed or settings, tree)
    if cfg:
        from .settings import commented

        print(commented(config, settings, tree), end="")
        return
    before = existing(Path(config.resume)) if resumed else None
    if before is None:
        check_paths(config)
        _check_task(config, settings)
    if not launch.started():
        settled = config
        if before is not None:
            from ..training.runner import changed

            settled = changed(load(before.config, packages(config.trust)), changes)
        if "trainer" in settled and launch.wanted(settled) > 1:
            sys.exit(launch.launch(settled, [*words, *settings]))
    task, where = cast(TrainingModule, import_module(row.trains)), list[Path]()
    trusted = [setting for setting in settings if setting.startswith("trust=")]

    def again() -> list[str]:
        # a run that could not write its first files has removed its folder
        return [*words, f"resume={where[0]}", *trusted] if where and Run(where[0]).config.exists() else []

    with signals.continue_with(again):
        finished = task.train(config, changes=changes, started=where.append)
    if signals.speaks():
        print(task.summary(finished))


def _check_task(config: DictConfig, settings: list[str]) -> None:
    """Raise if another task, or other data, is named than the data is for, and no column of it is named."""
    from ..files.at_path import is_search
    from ..settings.hints import data_settings

    root = config.data.get("root")
    named = any(setting.startswith("data.load.") for setting in settings)
    if root and not named and config.task != "search" and is_search(str(root)):
        raise ValueError(f"{root} holds queries and documents. To train a search: {data_settings(str(root))}")


def several_options(parser: argparse.ArgumentParser, holds: str, folder: str) -> None:
    """Add -o and -j to a command that trains several runs.

    Args:
        parser: of the command.
        holds: what the folder of -o holds.
        folder: the default of -o.
    """
    parser.add_argument(
        "-o", "--out", type=Path, default=Path(folder), help=f"folder of the {holds} (default: {folder})"
    )
    parser.add_argument(
        "-j", "--jobs", type=int, default=1, help="runs at the same time; they share the CPU cores (default: 1)"
    )


def compare_losses(arguments: argparse.Namespace, settings: list[str], command: str) -> None:
    """Train several losses by `rankgrad COMMAND`, print their table and write their page."""
    from ..report.writing import write_comparison
    from ..runs.compare import compare, folders

    print(compare(settings, arguments.out, arguments.jobs, command))
    print(f"report: {write_comparison(arguments.out / 'compare.html', folders(settings, arguments.out))}")
