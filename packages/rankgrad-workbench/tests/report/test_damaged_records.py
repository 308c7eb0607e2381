"""A received run whose json has null or another type in any record: one line, and no traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kept_runs import copied
from omegaconf import OmegaConf

from rankgrad.evaluation import METRICS, Protocol, Report, evaluate
from rankgrad.evaluation.json_report import fits
from rankgrad_workbench.cli import main
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search.bm25 import Words
from rankgrad_workbench.tasks.search.evaluation import SearchReport
from rankgrad_workbench.tasks.search.systems import Chosen

# Names whose values have the type of another name.
SAME = ("R@1", "R@2", "R@4", "R@8", "R-precision", "P@1", "MRR", "NDCG", "ROC AUC", "AUC_hardest", "data", "torch")


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value, but of the first record alone of each list, and of few metrics."""
    yield path
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for number, (name, value) in enumerate(inner):
        if name not in SAME and (number < 2 or (isinstance(content, dict) and number < 60)):
            yield from places(value, (*path, name))


def spoiled(content: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, the content with null at the path) for each path."""
    for path in places(content):
        changed = inner = copy.deepcopy(content)
        for name in path[:-1]:
            inner = inner[name]
        if path:
            inner[path[-1]] = None
        yield path, changed if path else None


def search_report() -> dict[str, Any]:
    """The content of after.json of a search, with a record in each list."""
    values, bounds = {"NDCG@10": 0.5, "MRR@10": 0.4, "Recall@100": 0.9}, {"NDCG@10": (0.4, 0.6)}
    difference = {"mean": 0.1, "low": 0.0, "high": 0.2}
    test = {**difference, "run": "trained", "other": "before training", "metric": "NDCG@10", "p": 0.1, "corrected": 0.2}
    document = {"name": "d1", "text": "one", "grade": 1}
    example = {"name": "q", "text": "a question", "values": {"trained": 0.5, "BM25": 0.1}, "missed": [document]}
    return json.loads(  # type: ignore[no-any-return]
        SearchReport(
            values=values,
            intervals=bounds,
            per_query={},
            systems={"trained": {"values": values, "intervals": bounds, "per_query": [0.5]}},
            tests=[{**test, "better": 1, "worse": 0}],
            verdict=("Better than before.",),
            examples=[{**example, "found": {"trained": [document], "BM25": [document]}}],
            query_names=("q",),
            counts={"queries": 1, "documents": 3},
            settings={"confidence": 0.95, "chosen": Chosen(Words(), {"trained + BM25": [1.0] * 7}, "BM25").plain()},
            notes=("a note",),
            sizes=({"name": "int8", "bytes": 4, "values": values, "difference": difference},),
        ).to_json()
    )


ALWAYS = {"retrieval": "after.json", "scores": "facts.json", "search": "after.json"}


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        pytest.param(kind, file, marks=() if ALWAYS[kind] == file else pytest.mark.slow)
        for kind in ALWAYS
        for file in ("after.json", "before.json", "facts.json", "health.json")
    ],
)
def test_a_record_of_another_type_is_one_line_that_names_the_file(kind, file, tmp_path):
    run = copied("retrieval" if kind == "search" else kind, tmp_path / "run")
    if kind == "search":
        OmegaConf.save(compose(["data.root=x"], "search"), run / "config.yaml", resolve=True)
        (run / "after.json").write_text(json.dumps(search_report()))
        (run / "before.json").write_text(json.dumps({"values": {"NDCG@10": 0.1}}))
    if not (run / file).exists():
        pytest.skip("this kind of run has no such file")
    whole, refused = json.loads((run / file).read_text()), 0
    write_report(tmp_path / "page.html", read_runs([run], pictures=False))
    for path, content in spoiled(whole):
        (run / file).write_text(json.dumps(content))
        try:
            write_report(tmp_path / "page.html", read_runs([run], pictures=False))
        except ValueError as error:
            refused += 1
            assert file in str(error) and "damaged" in str(error) and "\n" not in str(error), (path, error)
        except Exception as error:
            raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
    assert refused > 1


def test_sizes_of_null_are_one_line_of_the_command(tmp_path, capsys):
    run = copied("retrieval", tmp_path / "run")
    content = json.loads((run / "after.json").read_text())
    (run / "after.json").write_text(json.dumps({**content, "per_class": [None]}))
    assert main(["report", str(run)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "after.json is not an evaluation report, or it is damaged: per_class" in told


def test_a_report_with_every_part_is_read_back():
    labels = torch.arange(6).repeat(2)
    names = [f"c{label}" for label in range(6)]
    for of, coarse in ((labels, labels % 2), (torch.stack([labels % 2, labels], 1), None), (labels.tolist(), None)):
        report = evaluate(torch.rand(12, 3), of, super_labels=coarse, class_names=names, intervals=5)
        assert Report.from_json(report.to_json()) == report
    words = [names[label] for label in labels]
    report = evaluate(torch.rand(12, 3), words, super_labels=[w[-1] for w in words], intervals=0)
    assert Report.from_json(report.to_json()) == report
    hot = torch.nn.functional.one_hot(labels).bool()
    report = evaluate(
        torch.rand(12, 3), hot, protocol=Protocol(weights=[1.0] * 12), metrics=[*METRICS, "FNMR@FMR=0.1"], intervals=0
    )
    assert Report.from_json(report.to_json()) == report


def test_what_fits_a_shape():
    assert (
        fits(1, float) and fits(True, bool) and fits(None, (float, None)) and fits([], [int]) and fits([[1]], [[int]])
    )
    assert fits({"a": 1, "c": "x"}, {"a": int}) and fits({"a": 1}, {str: float})
    assert not any((fits(True, float), fits(1, bool), fits("x", [str]), fits([], {}), fits({"a": None}, {"a": int})))
    assert not fits({"a": 1}, {"a": int, "b": int}) and not fits({"a": "x"}, {str: float})
