"""What users can name, and what short trainings give: the house may be rebuilt, this stays.

    python tests/inventory.py            compare with tests/inventory.json, and print what differs
    python tests/inventory.py --write    write the file again, where a difference is meant
    python tests/inventory.py --exact    print a fingerprint of each training, to the last bit

The names are those of the library alone; papers/tests/paper_inventory.json has what the laboratory adds.
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
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_suffix(".json")
OF_PAPERS = Path(__file__).parents[1] / "papers" / "tests" / "paper_inventory.json"  # what the laboratory adds
STEPS = ("trainer.max_epochs=3", "trainer.log_every_n_steps=1")


def commands() -> dict[str, list[str]]:
    """Command -> its options and the names of its arguments."""
    from rankgrad.common.plugins import registered
    from rankgrad.workbench.cli import COMMANDS, _parser

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
    from rankgrad.workbench.config import TREES, compose, keys, options

    found = {"train": keys(compose([]))}
    found |= {name: keys(compose(["data.root=here"], name)) for name in ("detect", "scores")}
    for name, (_, groups) in TREES.items():
        for group in groups:
            found[f"{name} {group}="] = options(group, name)
    for loss in options("loss"):
        if f"loss={loss}" in known:
            continue  # to compose one takes a tenth of a second
        found[f"loss={loss}"] = keys(compose([f"loss={loss}"]).loss)
    return {name: sorted(each) for name, each in found.items()}


def tables() -> dict[str, list[str]]:
    """What can be named in Python and in settings."""
    from rankgrad import metrics
    from rankgrad.losses import LOSSES
    from rankgrad.models import MODELS
    from rankgrad.workbench.config import options

    public = [name for name, each in vars(metrics).items() if inspect.isfunction(each) and name[0] != "_"]
    own = [name for name in public if getattr(metrics, name).__module__ == "rankgrad.metrics"]
    found = {"data sets": options("data"), "losses": LOSSES, "models": MODELS, "metrics": own}
    return {name: sorted(each) for name, each in found.items()}


def public_names() -> dict[str, list[str]]:
    """Module -> what it exports with `__all__`."""
    import rankgrad

    root = Path(rankgrad.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                inside = path.relative_to(root.parent).with_suffix("").parts
                found[".".join(part for part in inside if part != "__init__")] = sorted(ast.literal_eval(node.value))
    return found


def trainings(work: Path, *more: str) -> dict[str, Callable[[], Path]]:
    """Short trainings of each kind, with more settings; each gives the folder of its run."""
    from small_detectors import settings as of_detector
    from small_runs import FEW_WEIGHTS, make_photos, make_texts, small, small_texts, train
    from voc_trees import shapes

    photos, texts = make_photos(work / "photos"), make_texts(work / "texts.csv")

    def retrieval(*given: str, name: str) -> Callable[[], Path]:
        return lambda: train(*given, *more, f"out={work / name}").folder

    def detector() -> Path:
        from rankgrad.detection.run import train as train_detector
        from rankgrad.workbench.config import compose

        tree = shapes(work)
        return train_detector(
            compose(of_detector(tree, *more, f"out={work / 'detector'}"), "detect"), quiet=True
        ).folder

    return {
        "glyphs, default loss": retrieval("data=glyphs", *FEW_WEIGHTS, *STEPS, name="glyphs"),
        "photographs, roadmap": retrieval(*small(photos, "loss=roadmap"), name="roadmap"),
        "photographs, rambo_ap, memory": retrieval(*small(photos, "loss=rambo_ap", "memory=joint"), name="memory"),
        "photographs, multi-similarity": retrieval(*small(photos, "loss=pml/multi_similarity"), name="ms"),
        "texts, default loss": retrieval(*small_texts(texts), name="texts"),
        "detector, ap": detector,
    }


def losses_of(run: Path) -> list[float]:
    """Loss of each step, as the run keeps it, and the weights: the sum of their absolute values."""
    import torch

    from rankgrad.workbench.runs.folder import Run
    from rankgrad.workbench.runs.history import curves

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


def added() -> dict[str, dict[str, list[str]]]:
    """What the laboratory adds to the names of the library, which are those of its file."""
    alone = json.loads(FILE.read_text(encoding="utf-8"))
    found: dict[str, dict[str, list[str]]] = {}
    for part, more in names("rankgrad-papers", alone["settings"]).items():
        for name, each in more.items():
            if new := sorted({*each} - {*alone[part].get(name, [])}):
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
    for file, names_of in ((FILE, lambda: alone), (OF_PAPERS, added)):
        now = names_of()  # of the laboratory once the file of the library is written
        if given.write:
            file.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        kept = json.loads(file.read_text(encoding="utf-8"))
        for part in {**kept, **now}:
            before, after = kept.get(part, {}), now.get(part, {})
            for name in sorted({*before, *after}):
                if before.get(name) != after.get(name):
                    print(f"{part}, {name}: was {before.get(name)}, is {after.get(name)}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
