"""What users can name, and what short trainings give: the house may be rebuilt, this stays.

    python tests/inventory.py            compare with tests/inventory.json, and print what differs
    python tests/inventory.py --write    write the file again, where a difference is meant
    python tests/inventory.py --exact    print a fingerprint of each training, to the last bit

The names are those of the library alone. What other packages of the clone add is in files beside their tests.
The test of this file compares the names, and the loss of the first step to three digits, as processors round
differently. `--exact` is for two commits on one machine with the same number of threads.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).parents[1]
#: Package -> the file of what it adds to the names of the library and of the packages before it.
ADDED = {
    "rankgrad-detection": ROOT / "packages" / "rankgrad-detection" / "tests" / "detection_inventory.json",
    "rankgrad-papers": ROOT / "papers" / "tests" / "paper_inventory.json",
}
STEPS = ("trainer.max_epochs=3", "trainer.log_every_n_steps=1")


def commands() -> dict[str, list[str]]:
    """Command -> its options and the names of its arguments."""
    from rankgrad.common.plugins import registered
    from rankgrad_workbench.cli import COMMANDS, _parser

    def parser_of(name: str) -> argparse.ArgumentParser:
        """A plug-in's is made only where it is named."""
        actions = _parser([name])._actions
        return next(action for action in actions if isinstance(action, argparse._SubParsersAction)).choices[name]

    def options(parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, sub in action.choices.items():
                    yield from (f"{name} {option}" for option in options(sub))
            else:
                yield from action.option_strings or [action.dest]

    return {name: sorted(options(parser_of(name))) for name in (*COMMANDS, *registered("commands", COMMANDS))}


def settings(known: Container[str] = ()) -> dict[str, list[str]]:
    """Every setting of each root file, what each group offers, and the settings of losses but the known."""
    from rankgrad_workbench.settings import compose, keys, options
    from rankgrad_workbench.settings.kinds import TASKS

    found = {}
    for row in TASKS.values():
        found[row.settings] = keys(compose([] if row.settings == "train" else ["data.root=here"], row.settings))
        for group in row.groups:
            found[f"{row.settings} {group}="] = options(group, row.settings)
    for loss in options("loss"):
        if f"loss={loss}" in known:
            continue  # to compose one takes a tenth of a second
        found[f"loss={loss}"] = keys(compose([f"loss={loss}"]).loss)
    return {name: sorted(each) for name, each in found.items()}


def tables() -> dict[str, list[str]]:
    """What can be named in Python and in settings."""
    from rankgrad import metrics
    from rankgrad.losses import LOSSES
    from rankgrad_workbench.models import MODELS
    from rankgrad_workbench.settings import options

    public = [name for name, each in vars(metrics).items() if inspect.isfunction(each) and name[0] != "_"]
    own = [name for name in public if getattr(metrics, name).__module__ == "rankgrad.metrics"]
    found = {"data sets": options("data"), "losses": LOSSES, "models": MODELS, "metrics": own}
    return {name: sorted(each) for name, each in found.items()}


def public_names() -> dict[str, list[str]]:
    """Module -> what it exports with `__all__`."""
    import rankgrad
    import rankgrad_workbench

    roots = [Path(package.__file__).parent for package in (rankgrad, rankgrad_workbench)]
    found = {}
    for root, path in ((each, path) for each in roots for path in sorted(each.rglob("*.py"))):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                inside = path.relative_to(root.parent).with_suffix("").parts
                found[".".join(part for part in inside if part != "__init__")] = sorted(ast.literal_eval(node.value))
    return found


def trainings(work: Path, *more: str) -> dict[str, Callable[[], Path]]:
    """Short trainings of each kind, with more settings; each gives the folder of its run."""
    from small_runs import FEW_WEIGHTS, make_photos, make_texts, small, small_texts, train

    photos, texts = make_photos(work / "photos"), make_texts(work / "texts.csv")

    def retrieval(*given: str, name: str) -> Callable[[], Path]:
        return lambda: train(*given, *more, f"out={work / name}").folder

    return {
        "glyphs, default loss": retrieval("data=glyphs", *FEW_WEIGHTS, *STEPS, name="glyphs"),
        "photographs, roadmap": retrieval(*small(photos, "loss=roadmap"), name="roadmap"),
        "photographs, rambo_ap, memory": retrieval(
            *small(photos, "loss=rambo_ap", "memory=sum", "memory.warmup=0"), name="memory"
        ),
        "photographs, multi-similarity": retrieval(*small(photos, "loss=pml/multi_similarity"), name="ms"),
        "texts, default loss": retrieval(*small_texts(texts), name="texts"),
    }


def losses_of(run: Path) -> list[float]:
    """Loss of each step, as the run keeps it, and the weights: the sum of their absolute values."""
    import torch

    from rankgrad_workbench.runs.folder import Run
    from rankgrad_workbench.runs.history import curves

    steps = [value for _, value in curves(Run(run))["loss"]]
    weights = torch.load(run / "model.pt", weights_only=True)
    tensors = [each for each in _tensors(weights) if each.is_floating_point()]
    return [*steps, sum(float(each.double().abs().sum()) for each in tensors)]


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)


def names(switch: str = "none", known: Container[str] = ()) -> dict[str, Any]:
    """All names, as the file keeps them.

    Args:
        switch: whose plug-ins are there, as `RANKGRAD_PLUGINS` says it.
        known: of `settings`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKGRAD_PLUGINS", switch)
        return {"commands": commands(), "settings": settings(known), "tables": tables(), "public": public_names()}


def added(package: str) -> dict[str, dict[str, list[str]]]:
    """What a package adds to the names of the library and of the packages before it, which are those of their files."""
    before = list(ADDED)[: list(ADDED).index(package)]
    known = [json.loads(path.read_text(encoding="utf-8")) for path in (FILE, *(ADDED[each] for each in before))]
    found: dict[str, dict[str, list[str]]] = {}
    for part, more in names(",".join([*before, package]), known[0]["settings"]).items():
        for name, each in more.items():
            if new := sorted({*each}.difference(*(of.get(part, {}).get(name, []) for of in known))):
                found.setdefault(part, {})[name] = new
    return found


def numbers(work: Path) -> dict[str, list[float]]:
    """Training -> its numbers."""
    return {name: losses_of(train()) for name, train in trainings(work).items()}


def main() -> None:
    """Compare, write, or print fingerprints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--exact", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = numbers(Path(work))
    if given.exact:
        for name, values in found.items():
            print(hashlib.sha256(repr(values).encode()).hexdigest()[:16], name)
        return
    alone = names() | {"trainings": {name: [float(f"{each:.5g}") for each in found[name]] for name in found}}
    for file, names_of in ((FILE, lambda: alone), *((ADDED[each], partial(added, each)) for each in ADDED)):
        now = names_of()  # of a package once the files before it are written
        if given.write:
            file.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for part in {**kept, **now}:
            before, after = kept.get(part, {}), now.get(part, {})
            for name in sorted({*before, *after}):
                if before.get(name) != after.get(name):
                    print(f"{part}, {name}: was {before.get(name)}, is {after.get(name)}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
