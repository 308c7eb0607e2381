"""The documentation says what is true: its code runs, its commands exist, its links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from text_models import sentences

import rankgrad
from rankgrad import losses, metrics
from rankgrad_workbench.settings.kinds import of_command
from rankgrad_workbench.training.state import EPOCHS, MAY_CHANGE

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "papers" / "docs").glob("*.md"),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
IMPORTED = re.compile(r"^ *(?:from|import) (rankgrad[\w.]*)", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, its text, its first line in the page, and whether it follows another directly."""

    language: str
    text: str
    line: int
    follows: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found, end = [], -1
    for match in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(match[1], match[2], text[: match.start()].count("\n") + 2, follows))
        end = match.end()
    return found


TOKENIZER = re.compile(r"^(\w+) = Tokenizer\(.*\n\1\..*\n\1\.train_from_iterator\(.*$", re.MULTILINE)
TOKENIZERS = [
    pytest.param(found, id=path.name)
    for path in [*PAGES, *(ROOT / "examples").glob("*.py")]
    for found in TOKENIZER.finditer(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("shown", TOKENIZERS)
def test_a_tokenizer_that_is_shown_numbers_every_text_within_its_vocabulary(shown):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = ["where is it ?", "a - b", "[ UNK ] and [ PAD ] ?"]
    space: dict[str, Any] = dict(
        Tokenizer=Tokenizer, models=models, pre_tokenizers=pre_tokenizers, trainers=trainers, texts=texts
    )
    exec(shown[0], space)
    words = space[shown[1]]
    numbers = {number for text in texts for number in words.encode(text).ids}
    assert max(numbers) < words.get_vocab_size()
    marks = {words.token_to_id(mark) for mark in re.findall(r'"(\S+?)"', shown[0])}
    assert len(marks) >= 1 and not marks & numbers


def test_tokenizers_are_shown():
    assert len(TOKENIZERS) == 3


def matches(expected: str, got: str) -> bool:
    """Equal up to trailing spaces; "..." stands for anything within a line."""
    wanted = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in expected.strip().splitlines()]
    lines = [line.rstrip() for line in got.strip().splitlines()]
    return len(wanted) == len(lines) and all(map(re.fullmatch, wanted, lines))


def execute(page: Path) -> None:
    """Run the Python blocks of a page in order, in one namespace; a text block directly behind one is its output."""
    space: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for block in blocks(page):
        if block.language == "python":
            # line numbers of errors are those of the page
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(code, space)
            printed = output.getvalue()
        elif block.language == "text" and block.follows:
            where = f"{page.name}, line {block.line}"
            assert matches(block.text, printed), f"{where} says\n{block.text}\nbut it prints\n{printed}"


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """contextlib.chdir, which Python 3.10 does not have."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs the code of a page once, in a folder of its own, which is given back."""
    folders: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp("page")
            threads = torch.get_num_threads()
            with inside(folder):
                execute(ROOT / name)
            torch.set_num_threads(threads)
            folders[name] = folder
        return folders[name]

    return run


# ------------------------------------------------------------------------------------------------------------- code


@pytest.mark.parametrize("name", [n for n, p in zip(NAMES, PAGES, strict=True) if "```python" in p.read_text("utf-8")])
def test_code_of_a_page_runs_and_prints_what_the_page_says(ran, name):
    ran(name)


def test_pages_import_nothing_from_deeper_than_two_dots():
    shown = [*PAGES, *(ROOT / "packages").glob("*/README.md")]
    imports = {(page.name, place) for page in shown for place in IMPORTED.findall(page.read_text("utf-8"))}
    assert len(imports) > 50 and not [each for each in imports if each[1].count(".") > 2]


def test_output_that_differs_would_be_noticed():
    assert matches("a ... c\n", "a b c  \n")
    assert not matches("1.0\n", "1.1\n")
    assert not matches("one\n", "one\ntwo\n")


# A user's script for each framework that rankgrad works in: short, and all of it to be seen.
SCRIPTS = (
    "lightning_module.py",
    "pml_tester.py",
    "pytorch_loop.py",
    "sentence_transformers_trainer.py",
    "torchmetrics_report.py",
    "transformers_trainer.py",
)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("compose_a_loss.py", []),
        ("evaluate_embeddings.py", []),
        ("train_loop.py", ["--steps", "1", "--loss", "pnp"]),
        ("small_text_model.py", ["texts.txt", "small"]),
        *((script, []) for script in SCRIPTS),
    ],
)
# what these frameworks say of a machine without a GPU, of loaders without workers, and of each other's newer versions
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")
@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")
def test_example_runs(monkeypatch, capsys, tmp_path, script, arguments):
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(sentences()[0]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert capsys.readouterr().out.count("\n") >= 3


@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")
def test_the_small_text_model_is_one_that_a_run_takes(tmp_path):
    from rankgrad_workbench.models import build_model

    build = runpy.run_path(str(ROOT / "examples" / "small_text_model.py"))["build"]
    build(sentences()[0], tmp_path / "model", dim=8, layers=1)
    model = build_model("sentence_transformer", name=str(tmp_path / "model"), head="none")
    assert model(sentences()[0][:2]).shape == (2, 8)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_user_s_script_is_short(script):
    lines = (ROOT / "examples" / script).read_text("utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 25


def test_every_example_is_run():
    source = Path(__file__).read_text("utf-8")
    assert [path.name for path in (ROOT / "examples").glob("*.py") if path.name not in source] == []


def test_steps_picture_can_be_drawn_again(tmp_path):
    script = runpy.run_path(str(ROOT / "docs" / "make_images.py"))
    assert script["steps"](tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


# --------------------------------------------------------------------------------------------------------- commands


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of every command that is shown, each once."""
    found: dict[tuple[str, ...], str] = {}
    for name, page in zip(NAMES, PAGES, strict=True):
        for block in blocks(page):
            if block.language in ("bash", "console"):
                text = block.text.replace("\\\n", " ")
                lines = [line.removeprefix("$ ") for line in text.splitlines() if line.strip()]
                if block.language == "console":
                    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
                for words in filter(None, (shlex.split(line, comments=True) for line in lines)):
                    found.setdefault(tuple(words), name)
    return [(name, [*words]) for words, name in found.items()]


@cache
def variant_fits(name: str, tree: str) -> None:
    """Compose a loss with its own settings: the same ones are in many commands."""
    from rankgrad_workbench import settings as config
    from rankgrad_workbench.runs import compare

    least = [] if tree == "train" else ["data.root=X"]
    config.compose([*least, *compare.own_settings(name, least, tree)], tree)


@pytest.mark.parametrize(
    ("name", "words"),
    # a user's pages always: to compose the settings of the laboratory's takes longer
    [pytest.param(*each, marks=pytest.mark.slow if each[0].startswith("papers") else ()) for each in commands()],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_exists_and_its_settings_fit(name, words, monkeypatch):
    from rankgrad_workbench import cli
    from rankgrad_workbench import settings as config
    from rankgrad_workbench.runs import compare, launchers
    from rankgrad_workbench.tuning import tune

    program, *rest = words
    if program == "torchrun":
        launcher, rest = rest[: rest.index("-m")], rest[rest.index("-m") + 1 :]
        assert all(word.startswith("--") for word in launcher)
        program, *rest = rest
    if (program, *rest[:2]) == ("python3", "-m", "venv"):
        assert rest[2:] == [".venv", "&&", ".", ".venv/bin/activate"]
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets)
    elif program == "pip":
        extras = re.findall(r"\.\[([\w,]+)\]", " ".join(rest))
        assert rest[:1] == ["install"] and all(f"\n{extra} = [" in _pyproject() for extra in extras)
    elif program == "python" and rest[0] == "-m":
        assert importlib.util.find_spec(rest[1])
    elif program == "python":
        assert (ROOT / rest[0]).exists()
    else:
        assert program == "rankgrad", f"{name} has a command that this test does not know: {program}"
        arguments, settings = cli._parser(rest).parse_known_args(rest)
        assert not [word for word in settings if word.startswith("-")]
        assert arguments.settings_allowed or not settings
        if arguments.command in ("compare", "tune", "reproduce", "detect"):
            if "launcher=submitit" in settings:
                launchers.read_launcher(settings)
            settings = [word for word in settings if not word.startswith("launcher")]
        tree = of_command("detect train" if arguments.command == "detect" else "train", settings).settings
        if "compare" in (arguments.command, getattr(arguments, "action", None)):
            names, _, others = compare._split(settings)
            config.compose([*others, *compare.own_settings(names[0], others, tree)], tree)
            for each in names[1:]:
                variant_fits(each, tree)
        elif arguments.command == "tune":
            plan = tune.read_plan(settings)
            config.compose([*plan.rest, *plan.final, *compare.own_settings(plan.losses[0], plan.rest, tree)], tree)
            for each in plan.losses[1:]:
                variant_fits(each, tree)
        elif arguments.command == "train" and any(setting.startswith("resume=") for setting in settings):
            assert all(setting.partition("=")[0] in (*MAY_CHANGE, EPOCHS) for setting in settings), name
        elif arguments.command == "train":
            own = types.ModuleType("mypackage")  # a package of the reader's
            exec("__name__ = 'mypackage'\nclass MyLoss:\n    def __init__(self, margin=0.1): ...", vars(own))
            monkeypatch.setitem(sys.modules, "mypackage", own)
            config.compose(settings, tree)


def _pyproject() -> str:
    return (ROOT / "pyproject.toml").read_text("utf-8")


def test_settings_of_the_training_page_exist():
    from rankgrad_workbench import settings as config

    text = (ROOT / "docs" / "training.md").read_text("utf-8")
    known = set()
    data = (["data=folder", "data.root=X"], ["data=omniglot", "data.root=X"], ["data=drawings"])
    for choice in (*data, ["model=timm"], ["memory=sum"]):
        known |= set(config.keys(config.compose(choice)))
    words = [word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()]
    named = {m[1] for word in words if (m := re.fullmatch(r"\+?([a-z_]+(?:\.[a-z_]+)+)(?:=.*)?", word))}
    files = {
        "config.yaml",
        "facts.json",
        "model.pt",
        "best.pt",
        "state.ckpt",
        "embeddings.npz",
        "before.json",
        "after.json",
    }
    files |= {
        "features.pt",
        "health.json",
        "report.html",
        "compare.md",
        "compare.json",
        "compare.html",
        "models.load_weights",
        "rankgrad.fit",
    }
    assert len(named) > 20
    assert named - known - files == set()


def test_commands_and_settings_of_the_detection_page_exist():
    from rankgrad_workbench import settings as config

    text = (ROOT / "docs" / "detection.md").read_text("utf-8")
    lines = re.findall(r"^rankgrad detect train (.*)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        words = [word for word in shlex.split(line, comments=True) if not word.startswith("--")]
        words = [*words, "data.root=x"] if any(word.startswith("resume=") for word in words) else words
        config.compose(words, "detect")
    known = set(config.keys(config.compose(["data.root=x"], "detect")))
    known |= set(config.keys(config.compose(["data.root=x", "model=faster_rcnn", "loss=supap"], "detect")))
    words = {word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()}
    named = {m[1] for word in words if (m := re.fullmatch(r"([a-z_]+\.[a-z_.]+)=.*", word))}
    assert named - known == set()


@pytest.mark.parametrize("group", ["data", "model", "recipe", "loss"])
def test_every_option_of_a_group_is_named(group):
    from rankgrad_workbench import settings as config

    text = "".join(
        (ROOT / "docs" / f"{page}.md").read_text("utf-8") for page in ("losses", "training", "datasets", "your-texts")
    )
    assert [option for option in config.options(group) if f"`{option}`" not in text] == []


def test_files_of_a_run_are_those_of_the_table(ran):
    text = (ROOT / "docs" / "training.md").read_text("utf-8")
    table = text[text.index("## What a run leaves") :]
    named = {
        word for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for word in re.findall(r"`([^`]+)`", row)
    }
    folder = ran("docs/training.md") / "short"
    assert named == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------------- what is named


def test_table_of_losses_is_that_of_the_code():
    text = (ROOT / "docs" / "losses.md").read_text("utf-8")
    assert all(f"| `{name}` |" in text for name in losses.LOSSES)


def test_every_metric_is_defined_on_the_page_of_metrics():
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    public = {
        name
        for name, value in vars(metrics).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == metrics.__name__
    }
    assert sorted(name for name in public - {"precision_at_relevant", "false_matches"} if f"`{name}`" not in text) == []


def test_every_metric_of_a_report_is_defined_on_the_page_of_metrics():
    from rankgrad.evaluation import METRICS, evaluate

    asked = [name for name in METRICS if not name.startswith("R@")] + ["R@1", "NMI", "AMI"]
    report = evaluate(torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2), metrics=asked, intervals=0)
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    column = {cell.strip() for cell in re.findall(r"^\| `[^|]*\|([^|]*)\|", text, re.MULTILINE)}
    assert [name for name in report.values if name.replace("R@1", "R@K") not in column] == []


# ------------------------------------------------------------------------------------------------- links and records


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_links_inside_the_repository_lead_somewhere(name):
    page = ROOT / name
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert broken == []


STATUS = re.compile(
    r"\*Status: \[(stable|experimental)\]\((?:\.\./)+CONTRIBUTING\.md#stable-and-experimental\)"
    r"( until the second release)?\.\*"
)
EXPERIMENTAL = {
    "scores",
    "search-documents",
    "plugins",
    "frameworks",
    "trees",
    "sklearn",
    "from-torchsort",
    "recommenders",
}
# What was measured, how the project works, and what the words mean.
WITHOUT_STATUS = {"index", "glossary", "results", "claims", "hypotheses", "benchmarks", "gallery", "sources"}
WITHOUT_STATUS |= {"results-scores", "measured", "design", "adding", "security", "contributing", "changelog"}


def test_every_page_about_the_interface_says_below_its_title_whether_that_is_stable():
    for page in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "papers" / "docs").glob("*.md")]):
        lines = page.read_text("utf-8").splitlines()
        found = STATUS.fullmatch(lines[2]) if len(lines) > 2 else None
        if page.stem in WITHOUT_STATUS:
            assert found is None, page.name
        else:
            wanted = ("experimental", " until the second release") if page.stem in EXPERIMENTAL else ("stable", None)
            assert found is not None and found.groups() == wanted, page.name


def test_files_that_pages_name_in_code_exist():
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"`(?:python )?((?:docs|tests|examples|rankgrad)/[\w/.]+)", page.read_text("utf-8")))
    assert named and [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_pictures_are_small_and_shown():
    text = "".join(page.read_text("utf-8") for page in PAGES)
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.name in text
        assert picture.stat().st_size < 200_000


def test_citation_and_changelog_are_of_this_version():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert str(citation["version"]) == rankgrad.__version__
    assert citation["license"] in _pyproject()
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
    assert len(citation["references"]) == 4
    heading = re.search(rf"## \[{re.escape(rankgrad.__version__)}\] - (.+)", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert heading is not None
    assert heading[1] == str(citation.get("date-released", "not released yet")), "a date stands in both, or in neither"
