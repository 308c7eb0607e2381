"""What users can name, and what short trainings give: the house may be rebuilt, this stays.

    python tests/inventory.py            compare with tests/inventory.json, and print what differs
    python tests/inventory.py --write    write the file again, where a difference is meant
    python tests/inventory.py --exact    print a fingerprint of each training, to the last bit

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
STEPS = ("trainer.max_epochs=3", "trainer.log_every_n_steps=1")


def commands() -> dict[str, list[str]]:
    """Command -> its options and the names of its arguments."""
    from rankgrad.cli import COMMANDS, _parser
    from rankgrad.plugins import registered

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


def settings() -> dict[str, list[str]]:
    """Every setting of `train` and `detect train`, and what each group offers."""
    from rankgrad.config import TREES, compose, keys, options

    found = {"train": keys(compose([])), "detect": keys(compose(["data.root=here"], "detect"))}
    for name, (_, groups) in TREES.items():
        for group in groups:
            found[f"{name} {group}="] = options(group, name)
    for loss in options("loss"):
        found[f"loss={loss}"] = keys(compose([f"loss={loss}"]).loss)
    return {name: sorted(each) for name, each in found.items()}


def tables() -> dict[str, list[str]]:
    """What can be named in Python and in settings."""
    from rankgrad import metrics
    from rankgrad.config import options
    from rankgrad.losses import LOSSES
    from rankgrad.models import MODELS

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


def trainings(work: Path) -> dict[str, Callable[[], Path]]:
    """Short trainings of each kind; each gives the folder of its run."""
    from small_detectors import settings as of_detector
    from small_runs import FEW_WEIGHTS, make_photos, make_texts, small, small_texts, train
    from voc_trees import shapes

    photos, texts = make_photos(work / "photos"), make_texts(work / "texts.csv")

    def retrieval(*given: str, name: str) -> Callable[[], Path]:
        return lambda: train(*given, f"out={work / name}").folder

    def detector() -> Path:
        from rankgrad.config import compose
        from rankgrad.detection.run import train as train_detector

        tree = shapes(work)
        return train_detector(compose(of_detector(tree, f"out={work / 'detector'}"), "detect"), quiet=True).folder

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

    from rankgrad.runs.folder import Run
    from rankgrad.runs.history import curves

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


def names() -> dict[str, Any]:
    """All names, as the file keeps them."""
    return {"commands": commands(), "settings": settings(), "tables": tables(), "public": public_names()}


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
    now = names() | {"trainings": {name: [float(f"{each:.5g}") for each in found[name]] for name in found}}
    if given.write:
        FILE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    for part in now:
        for name in sorted({*now[part], *kept[part]}):
            one, other = kept[part].get(name), now[part].get(name)
            if one != other:
                print(f"{part}, {name}: was {one}, is {other}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
