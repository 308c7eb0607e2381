"""Train a network that sorts (SoDeep), and measure the error of its ranks.

  rankgrad sodeep                           list the stored sorters
  rankgrad sodeep train --items 128         train a sorter for up to 128 scores, in minutes on a CPU, for loss=sodeep_ap
  rankgrad sodeep check --items 128         print the errors of this sorter again
  rankgrad sodeep cost --lengths 100,384    time and memory, compared with exact and sigmoid ranks

Sorters are stored in sodeep/ of $XDG_CACHE_HOME/rankgrad, or of ~/.cache/rankgrad.
"""

from __future__ import annotations

import argparse


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("train", "check", "cost"),
        help="train a sorter, print its errors, or measure time and memory (default: list the stored sorters)",
    )
    parser.add_argument("--items", type=int, default=20, help="length of the lists (default: 20)")
    parser.add_argument(
        "--architecture",
        default="lstm_small",
        help="name of a network in rankgrad_papers.sodeep.ARCHITECTURES (default: lstm_small)",
    )
    parser.add_argument("--steps", type=int, default=3000, help="training steps (default: 3000)")
    parser.add_argument("--batch-size", type=int, default=32, help="lists in a batch (default: 32)")
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate (default: 0.01)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training (default: 0)")
    parser.add_argument("--again", action="store_true", help="train it again, even if it is stored already")
    parser.add_argument(
        "--lengths", help="lengths of the test lists, such as 128,64 (default: ITEMS, and half of ITEMS)"
    )


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train, evaluate or time a sorter, or list the stored ones."""
    from .. import sodeep

    if arguments.action is None:
        _list()
        return
    recipe = sodeep.Recipe(
        arguments.items, arguments.architecture, arguments.steps, arguments.batch_size, arguments.lr, arguments.seed
    )
    lengths = [recipe.items, max(recipe.items // 2, 2)]
    if arguments.lengths is not None:
        try:
            lengths = [int(n) for n in arguments.lengths.split(",")]
        except ValueError:
            raise ValueError(f"--lengths needs integers such as 128,64; got {arguments.lengths!r}") from None
        if min(lengths) < 2:
            raise ValueError(f"--lengths must be >= 2; got {arguments.lengths}")
    if arguments.action == "cost":
        from ..sodeep.costs import costs

        print(costs(lengths, recipe.architecture))
        return
    path = sodeep.sorter_file(recipe)
    if arguments.action == "train":
        if arguments.again:
            path.unlink(missing_ok=True)
        sorter: sodeep.Sorter | None = sodeep.load(recipe)
    else:
        sorter = sodeep.read_sorter(path)
    if sorter is None:
        raise FileNotFoundError(f"{path} does not exist: train it first with rankgrad sodeep train and these options")
    print(sodeep.table(sorter, lengths))
    print(f"\nstored in {path}")


def _list() -> None:
    from .. import sodeep

    folder = sodeep.default_folder()
    sorters = [(path, sodeep.read_sorter(path)) for path in sorted(folder.glob("*.sorter"))]
    if not sorters:
        print(f"no sorters in {folder}; train one with rankgrad sodeep train")
    for path, sorter in sorters:
        if sorter is not None:
            print(f"{sorter!r:52} off by {sorter.facts['error']:.2f} ranks on average  {path}")
