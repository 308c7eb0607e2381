"""What the studies measure of a run, on embeddings that one can check by hand, and what was decided by them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from marks import slow_unless

from rankgrad_papers import trainings
from rankgrad_papers.studies import (
    batch_ap,
    full_length,
    graded,
    one_split,
    scores,
    starts,
    tables,
    texts,
    trees,
    triplets,
)
from rankgrad_papers.values import cells, difference, read
from rankgrad_workbench.files import defaults
from rankgrad_workbench.runs.provenance import made_by


@pytest.fixture
def run(tmp_path):
    """Two classes of two rows: equal within a class, at a right angle between them, of any length."""
    np.savez(tmp_path / "x.npz", embeddings=np.float32([[2, 0], [1, 0], [0, 1], [0, 3]]), labels=[4, 4, 7, 7])
    values = {"R@1": 1.0, "mAP@R": 0.5, "AP": 0.25}
    return SimpleNamespace(read_values=lambda: values, embeddings=tmp_path / "x.npz")


def test_shares_are_per_cent_and_the_cosine_is_that_of_rows_of_two_classes(run):
    assert starts.measured(run) == {"R@1": 100, "mAP@R": 50, "cosine between classes": 0}


def test_the_cosine_within_a_class_leaves_a_row_itself_out(run):
    found = {"R@1": 100, "mAP@R": 50, "AP": 25, "cosine within a class": 1, "cosine between classes": 0}
    assert texts.measured(run) == pytest.approx(found)


@pytest.mark.parametrize("study", slow_unless({starts}, [starts, texts]))
def test_what_a_study_trains_are_settings_that_there_are(study):
    from rankgrad_workbench.settings import compose

    rows = study.LOSSES if study is starts else study.ROWS
    data = () if study is starts else ("data=clinc150", "fold=1/3")
    for own in rows.values():
        compose([*study.SHARED, *data, "data.root=.", *own])


@pytest.mark.slow
def test_the_margins_of_the_triplet_loss_are_settings_of_batches_of_64():
    from rankgrad_workbench.settings import compose

    for images, batch in triplets.BATCHES.items():
        made = compose([*triplets.SHARED, "data.root=.", "loss.loss.margin=0.05", *batch, "fold=1/3"])
        assert made.loss.miner.margin == 0.05 and made.sampler.samples_per_class == images
        assert made.sampler.classes_per_batch * images == 64


def test_the_temperature_for_texts_is_the_better_one_of_those_that_were_measured():
    found = read(Path(__file__).parents[1] / "results" / "texts" / "folds.csv")
    name, own = defaults.LOSSES["texts"]
    default = f"{name}, tau {own['tau']:g}".replace("0.", ".")
    others = {row["loss"] for row in found.settings if row["loss"].startswith(name)} - {default}
    assert others
    for other, metric in product(others, ("R@1", "mAP@R")):
        ahead = difference(*(found.units({"loss": loss, "optimizer": "adamw"}, metric) for loss in (default, other)))
        assert ahead is not None and ahead.low > 0


RESULTS = Path(__file__).parents[1] / "results"


# each composes every row: one stands for the others
@pytest.mark.parametrize("name", slow_unless({"omniglot/precision"}, one_split.TABLES))
def test_what_a_table_of_one_split_trains_are_settings_that_there_are(name):
    from rankgrad_workbench.settings import compose
    from rankgrad_workbench.settings.kinds import of_command

    table = one_split.TABLES[name]
    shared = [*table.shared, "data.root=.", *(["model.weights=model.pt"] if table.weights else [])]
    tree = of_command("train", shared).settings
    rows = one_split.rows_of(name, RESULTS)
    composed = [str(compose([*shared, *own], tree)) for own in rows.values()]
    assert all(len(row) == len(table.columns) for row in rows)
    assert len({*composed}) == len(rows)  # no training has two rows


def test_the_best_trial_of_each_loss_is_trained_again_with_its_rate(tmp_path):
    lines = [
        "loss,trial,state,mAP@R,optimizer.lr,loss.tau,loss.quantiles",
        "supap,0,complete,.3,1.0,.01,",
        "supap,1,complete,.4,2.0,.02,",
        "supap,2,pruned,.9,3.0,.03,",
        'roadmap,0,complete,.1,1.0,.04,"[0.5,0.99]"',
    ]
    (tmp_path / "trials.csv").write_text("\n".join(lines), encoding="utf-8")
    assert one_split.winners(tmp_path / "trials.csv") == {
        ("supap",): ("loss=supap", "optimizer.lr=0.06", "loss.tau=.02"),
        ("adaptive_roadmap",): (
            *("loss=adaptive_roadmap", "optimizer.lr=0.03", "loss.tau=.04"),
            "loss.quantiles=[0.5,0.99]",
        ),
    }


def test_a_table_of_one_split_trains_every_cell_once(tmp_path, monkeypatch):
    trained = []

    def train(following, ended, out, jobs, command):
        while (task := following()) is not None:
            task[0].mkdir(parents=True)
            trained.append(task[1])
            ended(task[0], None)

    monkeypatch.setattr(trainings, "train_in_turn", train)
    monkeypatch.setattr(one_split, "measured", lambda run, metrics: dict.fromkeys(metrics, 1.0))
    words = ["omniglot/precision", "--data-root", ".", "--values", str(tmp_path), "--runs", str(tmp_path / "runs")]
    for _ in range(2):  # the second time there is nothing left to do
        one_split.main([*words, "--seeds", "3", "4"])
        assert len(trained) == 2 * len(one_split.TABLES["omniglot/precision"].rows)
    assert trained[1][-3:] == ["loss=roadmap", "trainer.precision=bf16-mixed", "seed=3"]
    found = read(tmp_path / "omniglot" / "precision.csv")
    assert found.units({"loss": "roadmap", "training in": "float32"}, "mAP@R") == {"3": 1, "4": 1}


def test_metrics_of_one_split_are_per_cent_and_only_those_of_the_table(run):
    assert one_split.measured(run, ("AP", "R@1")) == {"AP": 25, "R@1": 100}
    assert one_split.measured(run, ("mAP@R", "AP of all pairs")) == {"mAP@R": 50, "AP of all pairs": 100}


def test_a_table_of_fine_tuned_networks_needs_their_weights(capsys):
    with pytest.raises(SystemExit):
        one_split.main(["omniglot/finetuned", "--data-root", "."])
    assert "--weights FILE" in capsys.readouterr().err


def test_what_was_tuned_at_full_length_is_written_once_with_the_settings_that_were_chosen(tmp_path, monkeypatch):
    asked = []

    def tune(settings, out, jobs):
        asked.append(settings)
        runs = {loss: [out / f"{loss}-{seed}" for seed in one_split.SEEDS] for loss in full_length.LOSSES}
        winners = {loss: SimpleNamespace(settings=["optimizer.lr=0.1", "memory=none"]) for loss in full_length.LOSSES}
        return SimpleNamespace(runs=runs, winners=winners)

    monkeypatch.setattr(full_length, "tune", tune)
    monkeypatch.setattr(full_length, "measured", lambda run: {"mAP@R": float(run.folder.name[-1])})
    for _ in range(2):
        full_length.main(["--data-root", "DIR", "--values", str(tmp_path / "a.csv"), "--runs", str(tmp_path)])
    assert {"trials=8", "folds=2", "seeds=0,1,2,3,4", "data=omniglot"} <= {*asked[0]}
    assert read(tmp_path / "a.csv").units({"loss": "info_nce"}, "mAP@R") == {str(n): n for n in range(5)}
    chosen = (tmp_path / "a-chosen.csv").read_text(encoding="utf-8").splitlines()
    made = ",".join(made_by().values())
    assert chosen[1:] == [f"{loss},optimizer.lr=0.1 memory=none,{made}" for loss in full_length.LOSSES]


def test_the_study_of_scores_trains_every_cell_once_and_reads_no_row_of_the_test_fold(tmp_path, monkeypatch):
    g = np.random.default_rng(0)
    rows, hits = g.normal(size=(80, 3)), np.arange(80) % 4 == 0
    np.savez(tmp_path / "small.npz", X=rows, y=hits.astype(int))
    monkeypatch.setattr(scores, "TABLES", ("small",))
    monkeypatch.setattr(scores, "TEMPERATURES", dict(list(scores.TEMPERATURES.items())[:3]))
    words = ["--data-root", str(tmp_path), "--values", str(tmp_path / "values"), "--steps", "2", "--only", "tables"]
    for _ in range(2):  # the second time there is nothing left to do
        scores.main(words)
        found = cells(tmp_path / "values" / "temperature.csv")
        assert len(found) == 2 * len(scores.TEMPERATURES)
        monkeypatch.setattr(scores, "trained", None)
    lists = scores.table(tmp_path, "small", 0)
    assert len(lists.rows) == 64 and int(lists.train.sum()) == 48 and int(lists.relevance.sum()) == 16


def test_the_graded_lists_of_the_study_keep_queries_whole():
    lists = scores.graded(Path(), "drawn", 0)
    assert lists.query is not None and not set(lists.query[lists.train].tolist()) & set(
        lists.query[~lists.train].tolist()
    )
    found = scores.judged(lists, lists.relevance + torch.linspace(0, 0.5, len(lists.rows)))  # no ties
    assert found["NDCG@10"] == pytest.approx(100) and found["NDCG@10 of training"] == pytest.approx(100)


def test_weighted_ap_is_the_ap_of_a_list_in_which_each_negative_stands_so_often():
    sklearn = pytest.importorskip("sklearn.metrics")
    g = np.random.default_rng(0)
    scores_, hits = g.permutation(40).astype(float), g.random(40) < 0.3
    assert batch_ap.weighted_ap(scores_, hits) == pytest.approx(sklearn.average_precision_score(hits, scores_))
    weights = np.where(hits, 1, 3)
    expected = sklearn.average_precision_score(hits, scores_, sample_weight=weights)
    assert batch_ap.weighted_ap(scores_, hits, 3) == pytest.approx(expected)


def test_a_stratified_batch_has_its_positives_and_no_row_twice():
    hits = np.arange(50) < 9
    for positives in (None, 4):
        rows = batch_ap.drawn(hits, 16, positives, np.random.default_rng(1))
        assert len(set(rows.tolist())) == 16
        assert positives is None or hits[rows].sum() == positives


def test_batches_that_are_the_whole_list_have_no_bias():
    g = np.random.default_rng(0)
    whole = batch_ap.measured(g.normal(size=24), np.arange(24) % 3 == 0, 24, 8)
    assert whole["bias"] == pytest.approx(0, abs=1e-9) and whole["bias weighted"] == pytest.approx(0, abs=1e-9)


def test_a_fold_of_a_table_divides_its_rows_into_three_and_standardises_on_those_that_train(tmp_path):
    g = np.random.default_rng(0)
    np.savez(tmp_path / "small.npz", X=g.normal(3, 2, size=(200, 3)), y=(np.arange(200) % 5 == 0).astype(int))
    seen = torch.zeros(200)
    for number in range(tables.FOLDS):
        lists, held_out, test = tables.fold(tmp_path, "small", number)
        assert torch.equal(lists.train.int() + held_out.int() + test.int(), torch.ones(200, dtype=torch.int32))
        assert lists.rows[lists.train].mean(0).abs().max() < 1e-5
        seen += test
    assert torch.equal(seen, torch.ones(200))


def test_of_the_trials_the_one_that_is_best_on_the_held_out_rows_is_kept_for_each_metric(tmp_path, monkeypatch):
    np.savez(tmp_path / "small.npz", X=np.arange(200.0)[:, None], y=(np.arange(200) % 5 == 0).astype(int))
    lists, held_out, test = tables.fold(tmp_path, "small", 0)
    hits = lists.relevance.float()
    given = [hits * torch.where(held_out, right, 1 - right) for right in (1.0, 0.0) for _ in range(4)]
    monkeypatch.setattr(tables, "trained", lambda *_: given.pop(0))
    values = tables.cell("focal", lists, held_out, test, 0, 1)
    assert values["AP"] < 100  # perfect on the held-out rows, and useless on the test fold
    assert len(given) == 0


@pytest.mark.parametrize("method", tables.METHODS)
def test_a_step_along_the_gradient_of_a_method_raises_positives_over_negatives(method):
    hits = torch.arange(40) % 5 == 0
    lists = scores.Lists(torch.zeros(40, 1), hits, None, torch.ones(40, dtype=torch.bool))
    for own in range(4):
        given = torch.linspace(-1, 1, 40, requires_grad=True)
        cost = tables.cost_of(method, own, lists, 20_000)(given, hits, None)
        (gradient,) = torch.autograd.grad(cost, given)
        assert gradient[hits].mean() < gradient[~hits].mean()


def test_the_picture_of_the_committed_values_has_a_diagram_for_each_metric(tmp_path):
    values = Path(__file__).parents[1] / "results" / "scores" / "tables.csv"
    tables.main(["--values", str(values), "--draw", str(tmp_path / "ranks.svg")])
    assert (tmp_path / "ranks.svg").stat().st_size > 10_000


def test_training_needs_the_folder_of_the_tables(capsys):
    with pytest.raises(SystemExit):
        tables.main([])
    assert "--data-root DIR" in capsys.readouterr().err


@pytest.mark.parametrize("method", graded.METHODS)
def test_a_step_along_the_gradient_of_a_method_raises_high_grades_over_low_ones(method):
    grades = torch.arange(40).remainder(3).float()
    query = torch.arange(4).repeat_interleave(10)
    for own in range(4):
        given = torch.linspace(-1, 1, 40, requires_grad=True)
        (gradient,) = torch.autograd.grad(graded.cost_of(method, own)(given, grades, query), given)
        assert gradient[grades == 2].mean() < gradient[grades == 0].mean()


def test_the_parts_of_graded_queries_are_judged_once_and_the_network_is_not_shown_their_spread(monkeypatch):
    g = np.random.default_rng(0)
    sizes = g.integers(2, 6, 20)
    whole = trees.Lists(g.normal(3, 2, size=(sizes.sum(), 3)), g.integers(0, 3, sizes.sum()), sizes)
    monkeypatch.setattr(trees, "graded", lambda *_: whole)
    judged = 0
    for part in range(graded.PARTS):
        lists, train, choose, judge = graded.divided(Path(), "any", part)
        assert len(lists.rows) == len(whole.rows) and len(train.sizes) == 12 and len(choose.sizes) == 4
        assert lists.rows[lists.train].mean(0).abs().max() < 1e-5
        assert torch.equal(lists.relevance[-len(judge.rows) :], torch.from_numpy(judge.grades).float())
        assert lists.query is not None
        assert torch.equal(lists.query[-len(judge.rows) :] - int(lists.query[-len(judge.rows)]), judge.query)
        judged += len(judge.sizes)
    assert judged == 20


def test_of_the_trials_on_graded_queries_the_one_that_is_best_on_the_choosing_queries_is_kept(monkeypatch):
    sizes = np.full(20, 5)
    whole = trees.Lists(np.arange(100.0)[:, None], np.tile([0.0, 0, 0, 1, 2], 20), sizes)
    monkeypatch.setattr(trees, "graded", lambda *_: whole)
    given = graded.divided(Path(), "any", 0)
    rows, last = len(given[0].rows), len(given[3].rows)
    chooses = torch.zeros(rows).index_fill_(0, torch.arange(len(given[1].rows), rows - last), 1.0)
    up = given[0].relevance * (2 * chooses - 1)  # right where it is chosen, and wrong elsewhere
    trials = [sign * up for sign in (-1, 1) for _ in range(4)]
    monkeypatch.setattr(graded, "trained", lambda *_: trials.pop(0))
    values = graded.cell("ndcg", given, 0, 1)
    assert values["MRR"] == pytest.approx(25)  # the first relevant row of each judged query is the fourth
    assert len(trials) == 0


def test_the_study_of_graded_lists_trains_every_cell_once(tmp_path, monkeypatch):
    monkeypatch.setattr(graded, "divided", lambda _, name, part: (name, part))
    monkeypatch.setattr(graded, "cell", lambda method, given, seed, steps: {"AP": float(len(method) + seed)})
    words = ["--data-root", ".", "--values", str(tmp_path / "graded.csv"), "--parts", "2", "--seeds", "2"]
    for _ in range(2):  # the second time there is nothing left to do
        graded.main(words)
        assert len(cells(tmp_path / "graded.csv")) == 2 * 2 * 2 * (len(graded.METHODS) + 1)
        monkeypatch.setattr(graded, "cell", None)
