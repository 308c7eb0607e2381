"""The study of recommenders: what it reads and measures, by hand, and that it continues where it stopped."""

from __future__ import annotations

import math

import pytest
import torch

from rankgrad_papers.studies import recommenders
from rankgrad_papers.values import read


@pytest.fixture
def folder(tmp_path):
    """Twelve users of two tastes; the first item of each is held out for validation, the second for the test."""
    lines: dict[str, list[str]] = {name: [] for name in ("train", "test", "train_data", "valid_data")}
    for user in range(12):
        items = [(user % 2) * 15 + (user + 2 * at) % 15 for at in range(6)]
        for at, item in enumerate(items):
            names = ["valid_data", "train"] if at == 0 else ["test"] if at == 1 else ["train_data", "train"]
            for name in names:
                lines[name].append(f"{user} {item}\n")
    for name, rows in lines.items():
        (tmp_path / f"{name}.txt").write_text("".join(rows))
    return tmp_path


def test_recall_and_ndcg_are_over_the_items_that_a_user_does_not_have(folder):
    train, test = recommenders.interactions(folder, "train", "test")
    assert (train.users, train.items) == (12, 29) and train.of(torch.tensor([3, 0])).sum(1).tolist() == [5, 5]
    g = torch.Generator().manual_seed(0)
    user, item = torch.randn(12, 4, generator=g), torch.randn(29, 4, generator=g)
    recalls, ndcgs = [], []
    for number, scores in enumerate((user @ item.T).tolist()):
        known = train.item[train.user == number].tolist()
        [wanted] = test.item[test.user == number].tolist()
        rank = 1 + sum(score > scores[wanted] for at, score in enumerate(scores) if at not in known)
        recalls.append(100.0 * (rank <= 20))
        ndcgs.append(100 / math.log2(1 + rank) if rank <= 20 else 0.0)
    found = recommenders.measured(user, item, train, test)
    assert found == pytest.approx({"Recall@20": sum(recalls) / 12, "NDCG@20": sum(ndcgs) / 12})


def test_the_best_trial_is_trained_again_and_a_second_call_trains_nothing(folder, tmp_path, monkeypatch):
    words = [
        "--data-root",
        str(folder),
        "--values",
        str(tmp_path / "new" / "values.csv"),
        "--passes",
        "4",
        "--trials",
        "2",
    ]
    recommenders.main(words)
    values = read(tmp_path / "new" / "values.csv")
    for loss in ("softmax", "sl_at_k"):
        trials = values.where({"split": "validation", "loss": loss})
        best = max(trials.settings, key=lambda each: trials.units(each, "Recall@20")["0"])
        [test] = values.where({"split": "test", "loss": loss}).settings
        assert {**test, "split": "validation"} == best and len(trials.settings) == 2
    monkeypatch.setattr(recommenders, "passes", lambda *given: pytest.fail("it trains again"))
    recommenders.main(words)
