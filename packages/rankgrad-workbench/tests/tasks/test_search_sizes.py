"""Smaller embeddings of a search: the loss of their first columns, int8 and bits, and their rows in the report."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_searches import beir, settings

from rankgrad.losses import AdaptiveROADMAPLoss, InfoNCELoss, ListNetLoss
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.encoders import StoredRows
from rankgrad_workbench.tasks.search.evaluation import SearchReport
from rankgrad_workbench.tasks.search.saved import evaluate_run
from rankgrad_workbench.tasks.search.sizes import bits, first, int8, loss_of_widths, of_bits, of_int8, sizes


def batch(dim: int = 8) -> tuple[torch.Tensor, ...]:
    drawn = torch.Generator().manual_seed(0)
    rows = [torch.nn.functional.normalize(torch.randn(n, dim, generator=drawn), dim=1) for n in (5, 12)]
    relevance = torch.rand(5, 12, generator=drawn) > 0.7
    return rows[0].requires_grad_(), rows[1], relevance, torch.rand(5, 12, generator=drawn) > 0.1


@pytest.mark.parametrize("loss", [InfoNCELoss(tau=0.1), ListNetLoss(tau=0.1)])
def test_loss_is_the_mean_over_the_widths_each_normalised_again(loss):
    queries, documents, relevance, valid = batch()
    found, scores = loss_of_widths(loss, queries, documents, relevance, valid, [2, 5])
    parts = []
    for width in (2, 5, 8):
        q, d = ([row[:width] / row[:width].norm() for row in rows] for rows in (queries, documents))
        parts.append(loss.from_scores(torch.stack([torch.stack([a @ b for b in d]) for a in q]), relevance, valid))
    torch.testing.assert_close(found, sum(parts) / 3)
    torch.testing.assert_close(scores, queries @ documents.T)


@pytest.mark.parametrize("widths", [[], [8]])
def test_all_columns_alone_are_the_loss_itself(widths):
    queries, documents, relevance, valid = batch()
    loss = InfoNCELoss(tau=0.1)
    found, _ = loss_of_widths(loss, queries, documents, relevance, valid, widths)
    assert torch.equal(found, loss.from_scores(queries @ documents.T, relevance, valid))


def test_statistics_of_a_loss_are_those_of_all_columns():
    queries, documents, relevance, _ = batch()
    one, other = AdaptiveROADMAPLoss(), AdaptiveROADMAPLoss()
    loss_of_widths(one, queries, documents, relevance, torch.ones_like(relevance), [2, 5])
    other.from_scores(queries @ documents.T, relevance, torch.ones_like(relevance))
    assert torch.equal(one.calibration.running, other.calibration.running)


def test_codes_are_those_of_sentence_transformers():
    theirs = pytest.importorskip("sentence_transformers").util.quantization.quantize_embeddings
    rows = torch.cat([torch.randn(40, 13, generator=torch.Generator().manual_seed(1)), torch.zeros(2, 13)])
    rows[:, 3] = 0.5  # a column with one value
    assert (int8(rows)[0].numpy() == theirs(rows.numpy(), "int8")).all()
    assert (bits(rows).numpy() == theirs(rows.numpy(), "ubinary")).all()
    restored = of_int8(*int8(rows))
    assert ((restored - rows).abs() <= int8(rows)[2] * 0.51 + 1e-7).all() and torch.equal(restored[:, 3], rows[:, 3])


def cosines(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    return np.array([[q @ d / np.linalg.norm(q) / np.linalg.norm(d) for d in documents] for q in queries])


def slow_int8(rows: np.ndarray) -> np.ndarray:
    made = np.zeros(rows.shape)
    for column in range(rows.shape[1]):
        low, high = rows[:, column].min(), rows[:, column].max()
        step = np.float32(high - low) / np.float32(255)
        for row in range(len(rows)):
            code = min(max(int(np.floor((rows[row, column] - low) / step)), 0), 255)
            made[row, column] = low + (code + 0.5) * step
    return made


def test_scores_of_smaller_embeddings_are_those_of_loops():
    drawn = torch.Generator().manual_seed(2)
    drawn_rows = torch.randn(4, 10, generator=drawn), torch.randn(30, 10, generator=drawn)
    queries, documents = (torch.nn.functional.normalize(rows, dim=1) for rows in drawn_rows)
    q, d = queries.double().numpy(), documents.double().numpy()
    wanted = {"10 columns": cosines(q, d), "4 columns": cosines(q[:, :4], d[:, :4])}
    wanted["int8"] = cosines(slow_int8(queries.numpy()), slow_int8(documents.numpy()))
    wanted["bits"] = np.array([[1 - 2 * ((a > 0) != (b > 0)).mean() for b in d] for a in q])
    found = sizes(queries, StoredRows(documents.split(11)), [4, 10], 30)
    assert {name: size.bytes for name, size in found.items()} == {
        "10 columns": 40,
        "4 columns": 16,
        "int8": 10,
        "bits": 2,
    }
    for name, scores in wanted.items():
        lists = found[name].found
        assert lists.score == pytest.approx(-np.sort(-scores, axis=1), abs=1e-5)
        assert np.take_along_axis(scores, lists.document, 1) == pytest.approx(lists.score, abs=1e-5)
    assert torch.equal(of_bits(bits(queries), 10) > 0, queries > 0)
    assert torch.allclose(first(queries, 4).norm(dim=1), torch.ones(4))


@pytest.mark.slow  # the scores of each size are those of loops above
def test_a_run_reports_each_size_and_learns_the_first_columns(tmp_path, capsys):
    root = beir(tmp_path / "data")
    runs = {
        name: task.train(compose(settings(root, f"out={tmp_path / name}", "trainer.max_epochs=1", *more)), quiet=True)
        for name, more in (("plain", []), ("full", ["widths=[16]"]), ("narrow", ["widths=[4,8]"]))
    }
    reports = {name: SearchReport.from_json(run.after) for name, run in runs.items()}
    weights = {name: torch.load(run.weights, weights_only=True)["state_dict"] for name, run in runs.items()}
    assert all(torch.equal(value, weights["full"][name]) for name, value in weights["plain"].items())
    assert not all(torch.equal(value, weights["narrow"][name]) for name, value in weights["plain"].items())
    assert [size["name"] for size in reports["plain"].sizes] == ["16 columns", "int8", "bits"]
    report = reports["narrow"]
    assert [size["name"] for size in report.sizes] == ["16 columns", "8 columns", "4 columns", "int8", "bits"]
    assert [size["bytes"] for size in report.sizes] == [64, 32, 16, 16, 2]
    assert report.sizes[0]["values"] == report.values and report.sizes[0]["difference"] is None
    less = report.sizes[2]["values"]["NDCG@10"] - report.values["NDCG@10"]
    assert report.sizes[2]["difference"]["mean"] == pytest.approx(less)
    assert "4 columns" in str(report) and "bytes of a document" in runs["narrow"].page.read_text("utf-8")
    again = evaluate_run(runs["narrow"].folder, bootstrap=0)
    assert [size["values"] for size in again.sizes] == [size["values"] for size in report.sizes]
    assert main(["train", *settings(root, f"out={tmp_path / 'wide'}", "widths=[64]")]) == 2
    assert "widths are numbers of columns of an embedding, which has 16; got 64" in capsys.readouterr().err
    assert main(["train", *settings(root, f"out={tmp_path / 'wide'}", "widths=[0]")]) == 2
    assert "widths" in capsys.readouterr().err
