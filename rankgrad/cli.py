"""The command `rankgrad`: sub-commands here, settings by Hydra (KEY=VALUE)."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ._version import __version__

TRAIN_HELP = """\
Train a retrieval model, evaluate it before and after, and write a folder with the model, its numbers and report.html.

  rankgrad train                                    the built-in glyphs, a few minutes on two CPU cores
  rankgrad train data=folder data.root=PHOTOS       your images: one sub-folder per class
  rankgrad train data=omniglot data.root=DIR loss=pnp loss.alpha=1 seed=1
  rankgrad train model=timm model.name=resnet50 model.pretrained=true data=folder data.root=PHOTOS
  rankgrad train trainer.devices=4                  one batch divided between four processes (GPUs, or CPU)
  rankgrad train memory=sum train.sub_batch=64      earlier batches in the lists; a batch that does not fit, in parts
  rankgrad train resume=runs/glyphs-...             continue where a run stopped
  rankgrad train data=omniglot data.root=DIR init=RUN frozen=true     a new head on frozen features, in seconds
"""

COMPARE_HELP = """\
Train several losses on the same data, seeds and budget; table of mean and spread.

  rankgrad compare loss=roadmap,pnp,smooth_ap,rambo_recall seeds=0,1,2
  rankgrad compare loss=pnp:alpha=1,pnp:variant=Ds data=omniglot data.root=DIR recipe=small -j 2 -o runs/pnp

A variant of a loss carries its own settings after a colon, joined by "+". Every other setting is one of
`rankgrad train`. Finished runs are kept, a run that was cut off is resumed: the same command again goes on.
"""

REPRODUCE_HELP = """\
Run a table of the four papers and put our cells beside the printed ones; without an ID, list all tables and figures.

  rankgrad reproduce
  rankgrad reproduce roadmap/table2 --data-root sop=DIR --data-root cub=DIR       what these two data sets fill
  rankgrad reproduce roadmap/table2 --stand-in omniglot --data-root DIR -j 2      the same grid with a small network
  rankgrad reproduce pnp/table1 --stand-in glyphs --seeds 0,1 --dry-run           which runs, and which are done

KEY=VALUE settings of `rankgrad train` go to all runs. Finished runs are kept, a run that was cut off is resumed: the
same command again goes on. A stand-in is not the paper's data, and everything it writes says so.
"""

EVALUATE_HELP = """\
Exact retrieval metrics of a run or of embeddings in an npz file.

An npz holds embeddings [n, d] and labels [n]; optionally ids, super_labels, class_names, super_names, and for a
separate gallery ref_embeddings, ref_labels, ref_ids.
"""

DATASETS_HELP = """\
List the data sets, describe one, draw its contact sheet, or check that a published one is complete.

  rankgrad datasets
  rankgrad datasets glyphs --sheet glyphs.png
  rankgrad datasets folder --root PHOTOS
  rankgrad datasets check cub --root CUB_200_2011       files, counts, presence of every image
  rankgrad datasets check cub --root CUB_200_2011 --images    also decode every image
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0 done, 1 the user can mend it (the message says how), 130 interrupted."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    flags = [word for word in rest if word.startswith("-")]
    if flags or (rest and not arguments.settings_allowed):
        parser.error(f"unknown argument {(flags or rest)[0]!r}; see rankgrad {arguments.command} --help")
    try:
        arguments.run(arguments, rest)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if arguments.debug or (error.name or "rankgrad").startswith("rankgrad"):
            raise
        print(f"rankgrad: this needs {error.name}, one of the extras: pip install 'rankgrad[all]'", file=sys.stderr)
        return 1
    except (ValueError, TypeError, OSError) as error:
        if arguments.debug:
            raise
        if "TORCHELASTIC_ERROR_FILE" in os.environ:  # one of several processes
            from .launch import report

            report(error)
        else:
            print(f"rankgrad: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rankgrad", description="Train embeddings on the metric you report.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"rankgrad {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    parser.set_defaults(settings_allowed=False, command=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    sub = command("train", TRAIN_HELP + "\n" + _groups())
    sub.add_argument("--cfg", action="store_true", help="print the settings and stop")
    sub.set_defaults(run=_train, settings_allowed=True)

    sub = command("compare", COMPARE_HELP)
    sub.add_argument("-o", "--out", type=Path, default=Path("runs/compare"), help="folder of the runs and the table")
    sub.add_argument("-j", "--jobs", type=int, default=1, help="runs at a time, each with its share of the cores")
    sub.set_defaults(run=_compare, settings_allowed=True)

    sub = command("reproduce", REPRODUCE_HELP)
    sub.add_argument("id", nargs="?", metavar="ID", help="table or figure, such as roadmap/table2")
    sub.add_argument("--data-root", action="append", default=[], metavar="NAME=DIR", help="of a data set; DIR: of all")
    sub.add_argument("--stand-in", choices=("omniglot", "glyphs"), help="the same grid on these, with a small network")
    sub.add_argument("--seeds", help="such as 0,1,2 (default: those of the table)")
    sub.add_argument("--rule", choices=("best", "last"), help="evaluation to report (default: the paper's)")
    sub.add_argument("--dry-run", action="store_true", help="list the runs, and stop")
    sub.add_argument("-o", "--out", type=Path, help="folder (default: runs/reproduce, runs/reproduce-STAND_IN)")
    sub.add_argument("-j", "--jobs", type=int, default=1, help="runs at a time, each with its share of the cores")
    sub.set_defaults(run=_reproduce, settings_allowed=True)

    sub = command("evaluate", EVALUATE_HELP)
    sub.add_argument("source", type=Path, metavar="RUN_OR_NPZ")
    sub.add_argument("-k", "--ks", default="1,2,4,8", help="cut-offs of R@K, comma-separated")
    sub.add_argument("--bootstrap", type=int, default=1000, help="resamples of the intervals; 0: none")
    sub.add_argument("--clusters", choices=("auto", "none"), default="auto", help="k-means for NMI, or not")
    sub.add_argument("-o", "--out", type=Path, help="also write the report as json")
    sub.set_defaults(run=_evaluate)

    sub = command("embed", "Embeddings of all images below a folder, with the model of a run.")
    sub.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or its model.pt")
    sub.add_argument("images", type=Path, metavar="DIR")
    sub.add_argument("-o", "--out", type=Path, required=True, help="npz to write; labels are the sub-folders")
    sub.add_argument("--batch-size", type=int, default=256)
    sub.set_defaults(run=_embed)

    sub = command("bench", "Speed and memory of losses and evaluation, as ratios within one run.")
    sub.add_argument("suites", nargs="*", metavar="SUITE", help="which (default: all); --list names them")
    sub.add_argument("--list", action="store_true", help="list the suites")
    sub.add_argument("--json", type=Path, help="also write the numbers")
    sub.add_argument("--markdown", type=Path, help="also write the tables as a page")
    sub.add_argument("--figure", type=Path, help="also draw growth with the batch (.svg, .png, .pdf)")
    sub.add_argument("--data-root", type=Path, help="Omniglot's folder, for the training suite")
    sub.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where losses are computed")
    sub.add_argument("--long", action="store_true", help="also sizes that take minutes (100M scores)")
    sub.add_argument("--quick", action="store_true", help="tiny sizes: shows that the suites run")
    sub.set_defaults(run=_bench)

    sub = command("datasets", DATASETS_HELP)
    sub.add_argument("words", nargs="*", metavar="[check] NAME", help="data set; with check: is it all there")
    sub.add_argument("--root", type=Path, help="where its files are")
    sub.add_argument("--images", action="store_true", help="check: decode every image, which takes a while")
    sub.add_argument("--sheet", type=Path, help="write a PNG with some images of some classes")
    sub.set_defaults(run=_datasets)
    return parser


def _groups() -> str:
    try:
        from .config import GROUPS, options
    except ModuleNotFoundError:  # evaluation works without the extras
        return "Training needs the extras: pip install 'rankgrad[all]'"
    lines = [f"  {group + '=':8}{', '.join(options(group))}" for group in GROUPS]
    return "\n".join(["groups:", *lines, "", "All settings of a run with these: rankgrad train --cfg [KEY=VALUE ...]"])


def _train(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .config import ConfigError, compose

    config = compose(settings)
    if arguments.cfg:
        from omegaconf import OmegaConf

        print(OmegaConf.to_yaml(config), end="")
        return
    extra = [s for s in settings if not s.startswith("resume=")]
    if config.resume is not None and extra:
        raise ConfigError(f"a resumed run keeps its own settings; leave out {' '.join(extra)}")
    from . import launch
    from . import run as runs

    if not launch.started():
        settled = config if config.resume is None else runs.open_run(config)[1]
        if launch.wanted(settled) > 1:
            sys.exit(launch.launch(settled, ["train", *settings]))
    where: list[Path] = []
    try:
        finished = runs.train(config, started=where.append)
    except KeyboardInterrupt:
        if where:
            command = shlex.join(["rankgrad", "train", f"resume={where[0]}"])
            print(f"\ninterrupted; continue with: {command}", file=sys.stderr)
        raise
    if launch.first():
        print(runs.summary(finished))


def _compare(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .compare import compare

    print(compare(settings, arguments.out, arguments.jobs))


def _reproduce(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .experiments.reproduce import reproduce

    name = arguments.id
    if name is not None and "=" in name:  # a setting that stands where the ID belongs
        raise ValueError(f"which table? rankgrad reproduce ID {name}; rankgrad reproduce lists them")
    text = reproduce(
        name,
        settings,
        arguments.out,
        data_roots=arguments.data_root,
        stand_in=arguments.stand_in,
        seeds=arguments.seeds,
        jobs=arguments.jobs,
        rule=arguments.rule,
        dry_run=arguments.dry_run,
    )
    print(text)


def _evaluate(arguments: argparse.Namespace, settings: list[str]) -> None:
    from zipfile import is_zipfile

    import numpy as np

    from .evaluation import evaluate

    source = arguments.source / "embeddings.npz" if arguments.source.is_dir() else arguments.source
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist: give the folder of a finished run, or an npz file")
    if not is_zipfile(source):
        raise ValueError(f"{source} is no npz file: write one with numpy.savez(FILE, embeddings=..., labels=...)")
    if arguments.out and not arguments.out.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.out.parent} to write {arguments.out.name} into")
    with np.load(source, allow_pickle=False) as file:
        columns = {name: file[name] for name in file.files}
    for needed in ("embeddings", "labels"):
        if needed not in columns:
            raise ValueError(f"{source} must hold 'embeddings' and 'labels'; it has {', '.join(sorted(columns))}")
    known = ("ids", "super_labels", "class_names", "super_names", "ref_embeddings", "ref_labels", "ref_ids")
    options = {name: columns[name] for name in known if name in columns}
    for name in ("class_names", "super_names"):
        if name in options:
            options[name] = [str(text) for text in options[name]]
    try:
        ks = tuple(int(k) for k in arguments.ks.split(","))
    except ValueError:
        raise ValueError(f"--ks takes integers such as 1,10,100; got {arguments.ks!r}") from None
    made = arguments.source / "config.yaml"
    seed = 0
    if made.exists():  # of a run: then k-means and intervals are those of after.json
        from .config import load

        seed = load(made).seed
    report = evaluate(
        columns["embeddings"],
        columns["labels"],
        ks=ks,
        bootstrap=arguments.bootstrap,
        clusters=arguments.clusters,
        seed=seed,
        progress=True,
        **options,
    )
    print(report)
    if arguments.out:
        report.to_json(arguments.out)
        print(f"wrote {arguments.out}")


def _embed(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .run import embed_folder

    count, skipped = embed_folder(arguments.model, arguments.images, arguments.out, arguments.batch_size)
    print(f"wrote {arguments.out}: {count} images" + (f", {len(skipped)} files skipped:" if skipped else ""))
    for path, reason in skipped:
        print(f"  {path}: {reason}")


def _bench(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .bench import GPU_SUITES, SUITES, run

    if arguments.list:
        for name, suite in (SUITES if arguments.device == "cpu" else GPU_SUITES).items():
            print(f"{name:12} {(suite.__doc__ or '').splitlines()[0]}")
        return
    run(
        arguments.suites,
        json_path=arguments.json,
        data_root=arguments.data_root,
        markdown_path=arguments.markdown,
        figure_path=arguments.figure,
        long=arguments.long,
        quick=arguments.quick,
        device=arguments.device,
    )


def _datasets(arguments: argparse.Namespace, settings: list[str]) -> None:
    from .config import unknown
    from .datasets import DATASETS

    words: list[str] = arguments.words
    check = words[:1] == ["check"]
    names = words[1:] if check else words
    if not words:
        for name, load in DATASETS.items():
            print(f"{name:12} {(load.__doc__ or '').splitlines()[0]}")
        return
    if len(names) != 1:
        raise ValueError(f"one data set at a time; got {' '.join(names) or 'none'}. Known: {', '.join(DATASETS)}")
    name = names[0]
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, sorted(DATASETS)))
    if name != "glyphs" and arguments.root is None:
        raise ValueError(f"{name} is read from files: say where with --root DIR")
    if name == "glyphs" and arguments.root is not None:
        raise ValueError("glyphs is built in and reads no files; leave out --root")
    if check:
        _check_dataset(name, arguments)
        return
    if arguments.images:
        raise ValueError(f"--images goes with a check: rankgrad datasets check {name} --root DIR --images")
    table = DATASETS[name](**({} if arguments.root is None else {"root": arguments.root}))
    print(table.summary())
    if arguments.sheet:
        from .datasets.base import contact_sheet

        contact_sheet(table, arguments.sheet)
        print(f"wrote {arguments.sheet}")


def _check_dataset(name: str, arguments: argparse.Namespace) -> None:
    from .datasets import OFFICIAL, inspect

    if name not in OFFICIAL:
        raise ValueError(
            f"{name} has no official layout to check; rankgrad datasets {name} reads and describes it. "
            f"To check: {', '.join(OFFICIAL)}"
        )
    if arguments.sheet:
        raise ValueError(f"--sheet draws images that are there: rankgrad datasets {name} --root DIR --sheet FILE")
    found = inspect(OFFICIAL[name], arguments.root, arguments.images)
    print(found)
    if found.wrong:
        raise ValueError(f"{name} is not as it was published: {found.wrong} thing(s) to mend, listed above")


if __name__ == "__main__":
    sys.exit(main())
