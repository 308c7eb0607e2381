"""A run of task=scores: what it leaves, what it is made of, how it goes on, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from children_here import Here
from marks import slow
from sklearn.metrics import average_precision_score
from small_tables import by_query, one_list, settings

from rankgrad.scores.evaluation import ScoreReport
from rankgrad_workbench.cli import main
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.models.state_dicts import read_plain, write_plain
from rankgrad_workbench.report.content import read_runs
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.runs import compare as comparing
from rankgrad_workbench.runs.check import check
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.runs.history import curves
from rankgrad_workbench.settings import ConfigError, compose, load
from rankgrad_workbench.tasks.scores import task
from rankgrad_workbench.tasks.scores.model import load_ranker
from rankgrad_workbench.tasks.scores.saved import evaluate_run, predict_file
from rankgrad_workbench.tasks.scores.table import load_table

TABLES = Path(os.environ.get("RANKGRAD_DATA", "")) / "tables"


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    return {"list": one_list(folder / "rows.csv"), "queries": by_query(folder / "documents.npz")}


@pytest.fixture(scope="module")
def finished(tables, tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: trained(table, f"out={folder / name}") for name, table in tables.items()}


def trained(table: Path, *more: str) -> Run:
    return task.train(compose(settings(table, *more), "scores"), quiet=True)


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and error.startswith("rankgrad: ")
    return error


def copied(run: Run, folder: Path) -> Run:
    shutil.copytree(run.folder, folder)
    return Run(folder)


# --------------------------------------------------------------------------------------------------------------- a run


@pytest.mark.parametrize("name", ["list", "queries"])
def test_a_run_leaves_model_scores_numbers_and_a_page_and_all_are_well(finished, name):
    run = finished[name]
    assert run.finished and check(run.folder).wrong == {}
    assert {run.before, run.weights, run.scores, run.page, run.facts, run.checksums} <= {*run.folder.iterdir()}
    assert run.read_untrained().keys() == run.read_values().keys()


def test_the_ap_of_a_run_is_that_of_its_scores(finished):
    columns = read_npz(finished["list"].scores)
    ap = average_precision_score(columns["relevance"], columns["score"])
    assert finished["list"].read_values()["AP"] == pytest.approx(ap)


def test_the_test_rows_are_those_that_the_table_holds_out_and_are_named_by_their_line(finished, tables):
    test = load_table(tables["list"]).part("test")
    columns = read_npz(finished["list"].scores)
    np.testing.assert_array_equal(columns["row"], test.rows)
    np.testing.assert_array_equal(columns["relevance"], test.relevance)


@pytest.mark.parametrize(
    ("name", "loss", "metric"), [("list", "InfoNCELoss", "AP"), ("queries", "LambdaLoss", "NDCG@10")]
)
def test_the_settings_of_a_run_say_which_loss_and_which_metric_auto_was(finished, name, loss, metric):
    config = load(finished[name].config)
    assert config.loss._target_.endswith(loss) and config.evaluation.select == metric


@pytest.mark.parametrize("name", ["list", "queries"])
def test_the_epoch_that_is_best_on_the_validation_rows_is_kept(finished, name):
    run = finished[name]
    [points] = [each for curve, each in curves(run).items() if curve.startswith("val/")]
    values, facts = [value for _, value in points], run.read_facts()
    assert len(values) == 3 and facts["best_validation"] == pytest.approx(max(values))
    assert facts["best_epoch"] == 1 + values.index(max(values))


def test_no_validation_row_is_trained_on_and_a_column_val_is_taken_as_it_is(tables):
    given = task.build(of_settings(tables["list"]), True)
    parts = [given.parts.train, given.parts.chosen_on, given.parts.test]
    rows = [set(part.rows.tolist()) for part in parts]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 300
    whole = task.build(of_settings(tables["list"], "evaluation.select=null"), True)
    assert whole.parts.chosen_on is None and len(whole.parts.train) == len(rows[0] | rows[1])


def of_settings(table: Path, *more: str):
    return compose(settings(table, *more), "scores")


@pytest.mark.parametrize(("loss", "start"), [("cross_entropy", torch.logit), ("squared_error", torch.clone)])
def test_losses_of_single_rows_start_at_their_best_constant(tables, loss, start):
    given = task.build(of_settings(tables["list"], f"loss={loss}"), True)
    *_, bias = (value for name, value in given.module.model.named_parameters() if name.endswith("bias"))
    wanted = start((given.parts.train.relevance > 0).double().mean())
    assert bias.item() == pytest.approx(wanted.item(), abs=1e-6)


def test_the_size_that_is_said_of_batches_is_the_largest_where_queries_differ(tables):
    said: list[str] = []
    given = task.build(of_settings(tables["queries"]), True, said.append)
    sizes = [len(batch) for batch in given.data.sampler]
    most = next(int(line.split()[4]) for line in said if line.startswith("batches of at most "))
    assert min(sizes) < max(sizes) <= most


def test_the_folds_of_the_training_rows_are_a_division_of_them(tables):
    for name, table in tables.items():
        train = load_table(table).part("train")
        inside = np.stack([task.in_fold(train, fold, 3) for fold in (1, 2, 3)])
        assert (inside.sum(0) == 1).all() and inside.any(1).all()
        if name == "queries":
            assert all(len(set(fold[train.query.numpy() == query])) == 1 for fold in inside for query in range(5))


def test_a_model_of_a_run_gives_the_scores_of_the_run(finished, tables):
    for name, run in finished.items():
        test = load_table(tables[name]).part("test")
        np.testing.assert_allclose(load_ranker(run.weights).score(test), read_npz(run.scores)["score"], rtol=1e-5)


@pytest.mark.parametrize("units", [10**11, 10**30, -1])
def test_a_file_that_claims_a_huge_model_is_refused_before_any_memory_is_taken(finished, tmp_path, units):
    saved = read_plain(finished["list"].weights)
    saved["model"]["hidden"] = [units]
    write_plain(tmp_path / "model.pt", saved)
    with pytest.raises(ValueError, match="does not fit|cannot be built"):
        load_ranker(tmp_path / "model.pt")


@pytest.mark.parametrize("loss", ["cross_entropy", "roc_auc", "supap"])
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_other_losses_and_models_are_trained(tables, tmp_path, loss, model):
    more = (f"loss={loss}", f"model={model}", f"out={tmp_path / 'run'}", "trainer.max_epochs=1")
    words = [word for word in settings(tables["list"], *more) if model == "mlp" or "hidden" not in word]
    run = task.train(compose(words, "scores"), quiet=True)
    assert 0 < run.read_values()["AP"] <= 1


@pytest.mark.skipif(not (TABLES / "mammography.npz").is_file(), reason="needs RANKGRAD_DATA/tables")
def test_a_real_table_is_ranked_far_better_than_by_chance(tmp_path):
    more = ("trainer.max_epochs=8", "sampler.batch_size=512", f"out={tmp_path / 'run'}")
    assert trained(TABLES / "mammography.npz", *more).read_values()["AP"] > 0.25  # 2.3 % of the rows are relevant


# ------------------------------------------------------------------------------------------------------------ going on


def test_a_finished_run_goes_on_with_more_epochs_by_the_command_train(finished, tmp_path, capsys):
    run = copied(finished["list"], tmp_path / "run")
    assert main(["train", f"resume={run.folder}", "trainer.max_epochs=4"]) == 0
    assert run.read_facts()["epochs"] == 4 and "AP" in capsys.readouterr().out


def test_a_run_does_not_go_on_with_other_rows(finished, tables, tmp_path, capsys):
    run, other = copied(finished["list"], tmp_path / "run"), one_list(tmp_path / "rows.csv", rows=200)
    error = fails(capsys, "train", f"resume={run.folder}", f"data.root={other}", "trainer.max_epochs=4")
    assert "rows (then 300, now 200)" in error


# -------------------------------------------------------------------------------------------------------------- predict


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
def test_predict_writes_the_scores_of_the_run_for_the_same_rows(finished, tables, tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    out, run = tmp_path / f"scores.{kind}", finished["queries"]
    assert main(["predict", str(run.folder), str(tables["queries"]), "-o", str(out)]) == 0
    columns = read(out)
    np.testing.assert_array_equal(columns["query"].astype(int), read_npz(tables["queries"])["query"])
    kept = read_npz(run.scores)
    place = {row: index for index, row in enumerate(columns["row"].astype(int).tolist())}
    scores = columns["score"].astype(float)[[place[row] for row in kept["row"].tolist()]]
    np.testing.assert_allclose(scores, kept["score"], rtol=1e-5)


def read(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
        return {name: np.array(table[name].to_pylist()) for name in table.column_names}
    rows = [*csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def test_predict_needs_no_label_takes_columns_in_any_order_and_words_that_it_does_not_know(finished, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("city,note,height,age\nA,hello,1.5,0.5\nnowhere,,,\n", encoding="utf-8")
    assert predict_file(finished["list"].folder, new, tmp_path / "scores.csv")[0] == 2
    assert np.isfinite(read(tmp_path / "scores.csv")["score"].astype(float)).all()


@pytest.fixture(scope="module")
def of_sessions(tmp_path_factory) -> Run:
    """A run with a query column and a delimiter of its own."""
    folder, g = tmp_path_factory.mktemp("sessions"), np.random.RandomState(0)
    lines = [f"{row // 6};{x:.3f};{'AB'[row % 2]};{int(x > 0)}" for row, x in enumerate(g.randn(180))]
    (folder / "rows.csv").write_text("\n".join(["session;x;city;label", *lines]) + "\n")
    more = ("data.load.query=session", "data.load.delimiter=;", "trainer.max_epochs=1", f"out={folder / 'run'}")
    return trained(folder / "rows.csv", *more)


def test_predict_takes_query_and_delimiter_of_the_run_and_rows_in_any_order(of_sessions, tmp_path, capsys):
    new, out = tmp_path / "new.csv", tmp_path / "scores.csv"
    new.write_text("x;session;city;qid\n1;b;A;1\n2;a;A;1\n1;b;A;2\n;;Z;3\n")
    words = ["predict", str(of_sessions.folder), str(new), "-o", str(out)]
    assert main(words) == 0
    found = read(out)
    assert found["query"].tolist() == ["b", "a", "b", ""] and found["score"][0] == found["score"][2]
    assert main([*words[:1], str(of_sessions.weights), *words[2:]]) == 0
    assert read(out)["query"].tolist() == ["b", "a", "b", ""]
    assert main([*words, "--query", "qid"]) == 0 and read(out)["query"].tolist() == ["1", "1", "2", "3"]
    assert main([*words, "--query", "none"]) == 0 and set(read(out)) == {"row", "score"}
    new.write_text("x\tcity\n1\tA\n")
    new.rename(tmp_path / "new.tsv")
    assert main([*words[:2], str(tmp_path / "new.tsv"), *words[3:]]) == 0 and set(read(out)) == {"row", "score"}
    capsys.readouterr()
    error = fails(capsys, *words[:2], str(tmp_path / "new.tsv"), *words[3:], "--query", "qid")
    assert "no column 'qid'" in error and "--query" in error


def test_messages_of_predict_name_only_its_options_and_settings_of_the_training(finished, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("age,height,city\n1,1,A\n2,2,A\nx,1,A\n")
    error = fails(capsys, "predict", str(finished["list"].folder), str(new), "-o", str(tmp_path / "scores.csv"))
    assert "--categorical" not in error and "data.load.categorical=[age]' in the training" in error


def test_words_of_which_most_are_unknown_are_told_by_predict_and_evaluate(finished, tables, tmp_path, capsys):
    head, *lines = tables["list"].read_text().splitlines()
    others = [line.replace(",A,", ",a,").replace(",B,", ",b,") for line in lines]
    (tmp_path / "new.csv").write_text("\n".join([head, *others]) + "\n")
    run, new = str(finished["list"].folder), str(tmp_path / "new.csv")
    assert main(["predict", run, new, "-o", str(tmp_path / "scores.csv")]) == 0
    assert "of 300 values are in no category of the training rows" in capsys.readouterr().out
    assert (
        main(["evaluate", run, "--root", new, "--bootstrap", "0"]) == 0
    )  # rows of C, which are as they were, are left out
    assert "values are in no category of the training rows" in capsys.readouterr().out


@pytest.mark.parametrize("row_of_each", [True, False])
def test_queries_in_which_nothing_can_be_ordered_are_refused(tmp_path, capsys, row_of_each):
    lines = [f"{row if row_of_each else row // 5},{row % 7},{row // 5 % 2}" for row in range(100)]
    (tmp_path / "rows.csv").write_text("\n".join(["query,x,label", *lines]) + "\n")
    error = fails(capsys, "train", *settings(tmp_path / "rows.csv", f"out={tmp_path / 'run'}"))
    assert "data.load.query=COLUMN" in error and "data.load.query=null" in error and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("train", "test", "query", "named"),
    [
        ("0", "01", "", "no two of the 60 training rows differ"),
        ("1", "01", "", "no two of the 60 training rows differ"),
        ("01", "0", "", "0 of the 60 rows"),
        ("01", "1", "", "60 of the 60 rows"),
        ("01", "0", "query", "none of the 12 queries"),
    ],
)
def test_rows_without_an_order_or_a_value_are_refused_before_the_training(tmp_path, capsys, train, test, query, named):
    for split, labels in (("train", train), ("test", test)):
        lines = [f"{row // 5},{row % 7},{labels[row % len(labels)]}" for row in range(60)]
        (tmp_path / f"{split}.csv").write_text("\n".join([f"{query or 'group'},x,label", *lines]) + "\n")
    words = settings(tmp_path, "evaluation.select=null", f"out={tmp_path / 'run'}")
    assert main(["train", *words]) == 2
    assert named in capsys.readouterr().err.splitlines()[-1] and not (tmp_path / "run").exists()


def test_the_settings_are_printed_with_a_file_to_come(capsys):
    assert main(["train", "task=scores", "data.root=FILE", "--cfg"]) == 0
    assert "queries_per_batch" in capsys.readouterr().out


def test_notes_on_the_columns_are_printed_before_the_training(tables, tmp_path, capsys):
    head, *lines = tables["list"].read_text().splitlines()
    rows = [f"{number},{number + 5},{line}" for number, line in enumerate(lines)]
    (tmp_path / "rows.csv").write_text("\n".join([f",id,{head}", *rows]) + "\n")
    assert main(["train", *settings(tmp_path / "rows.csv", "trainer.max_epochs=1", f"out={tmp_path / 'run'}")]) == 0
    printed = capsys.readouterr()
    assert "without a name are left out" in printed.out + printed.err
    assert "data.load.drop=[id]" in printed.out + printed.err


@pytest.mark.parametrize(
    ("text", "out", "named"),
    [
        ("city,height\nA,1\n", "scores.csv", "age"),
        ("age,height,city\nx,1,A\n", "scores.csv", "age"),
        ("age,height,city\n1,1,A\n", "scores.json", "scores.json"),
        ("age,height,city\n1,1,A\n", "nowhere/scores.csv", "nowhere"),
        ("age,height,city\n", "scores.csv", "new.csv"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_that_names_it(finished, tmp_path, capsys, text, out, named):
    new = tmp_path / "new.csv"
    new.write_text(text, encoding="utf-8")
    error = fails(capsys, "predict", str(finished["list"].folder), str(new), "-o", str(tmp_path / out))
    assert named in error and not (tmp_path / out).exists()


@pytest.mark.parametrize("damage", ["cut", "other", "width", "encoding", "module"])
def test_a_damaged_model_is_refused_with_its_name(finished, tmp_path, capsys, damage):
    run = copied(finished["list"], tmp_path / "run")
    saved = torch.load(run.weights, weights_only=True)
    if damage == "cut":
        run.weights.write_bytes(run.weights.read_bytes()[:-100])
    else:
        key, value = {
            "other": ("format", "another"),
            "width": ("model", {**saved["model"], "hidden": [9]}),
            "encoding": ("encoding", {**saved["encoding"], "numbers": [{"name": "age"}]}),
            "module": ("model", {**saved["model"], "kind": "_given"}),
        }[damage]
        torch.save({**saved, key: value}, run.weights)
    new = one_list(tmp_path / "new.csv", 5)
    assert "model.pt" in fails(capsys, "predict", str(run.folder), str(new), "-o", str(tmp_path / "scores.csv"))


# -------------------------------------------------------------------------------------------------------- evaluating


@pytest.mark.parametrize("name", ["list", "queries"])
def test_a_run_that_is_evaluated_again_has_the_report_that_it_has(finished, tmp_path, name):
    run, out = finished[name], tmp_path / "report.json"
    assert main(["evaluate", str(run.folder), "--bootstrap", "20", "-o", str(out)]) == 0
    assert ScoreReport.from_json(out) == ScoreReport.from_json(run.after)


def test_the_test_rows_in_a_file_of_their_own_have_the_numbers_of_the_run(finished, tables, tmp_path, capsys):
    test = load_table(tables["list"]).part("test")
    lines = tables["list"].read_text().splitlines()
    (tmp_path / "test.csv").write_text("\n".join([lines[0], *(lines[row - 1] for row in test.rows)]) + "\n")
    numbers = dict(np.load(tables["queries"]))
    inside = np.isin(numbers["query"], numbers["query"][load_table(tables["queries"]).part("test").rows])
    np.savez(tmp_path / "test.npz", **{column: values[inside] for column, values in numbers.items()})
    for name, root, extra in (("list", "test.csv", "Recall@10"), ("queries", "test.npz", "P@3")):
        words = ["--root", str(tmp_path / root), "-e", extra, "--bootstrap", "0", "-o", str(tmp_path / "report.json")]
        assert main(["evaluate", str(finished[name].folder), *words]) == 0
        values = ScoreReport.from_json(tmp_path / "report.json").values
        assert values.pop(extra) > 0 and values == pytest.approx(finished[name].read_values())
        assert extra in capsys.readouterr().out


@pytest.mark.parametrize("name", ["list", "queries"])
def test_what_the_run_was_trained_on_is_left_out_of_an_evaluation_and_counted(finished, tables, name, tmp_path, capsys):
    run, root = finished[name], tables[name]
    report = evaluate_run(run.folder, root=root, bootstrap=0)
    assert report.values == pytest.approx(run.read_values())  # the test rows alone
    count = "240 of 300 rows are training rows" if name == "list" else "32 of 40 queries are training queries"
    assert any(note.startswith(count) for note in report.notes)
    train = tmp_path / root.name
    table = load_table(root)
    if name == "list":
        lines = root.read_text().splitlines()
        train.write_text("\n".join([lines[0], *(lines[line - 1] for line in table.part("train").rows)]))
    else:
        content = read_npz(root)
        np.savez(train, **{key: column[table.split == "train"] for key, column in content.items()})
    assert "of the run. Give rows that are new" in fails(capsys, "evaluate", str(run.folder), "--root", str(train))


def test_what_cannot_be_evaluated_again_is_one_line(finished, tables, tmp_path, capsys):
    run = copied(finished["queries"], tmp_path / "run")
    assert "--ks" in fails(capsys, "evaluate", str(run.folder), "-k", "1,10")
    assert "P@" in fails(capsys, "evaluate", str(run.folder), "-e", "R@x")
    (tmp_path / "other.csv").write_text("x0,x1,query\n1,2,a\n")
    error = fails(capsys, "evaluate", str(run.folder), "--root", str(tmp_path / "other.csv"))
    assert "data.load.label=NAME in the training" in error  # the command has no such option
    assert "no training file" in fails(capsys, "evaluate", str(run.folder), "--root", str(tmp_path))
    np.savez(tmp_path / "embeddings.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    error = fails(capsys, "evaluate", str(tmp_path / "embeddings.npz"), "--root", str(tables["list"]))
    assert "is no run, so it has no model for the data of --root" in error
    columns = read_npz(run.scores)
    for name, damage in (("query", columns["query"] + 1000), ("query", columns["query"] + 0.5), ("score", "a")):
        np.savez(run.scores, **{**columns, name: damage})
        fails(capsys, "evaluate", str(run.folder))
    run.after.unlink()
    assert "finished" in fails(capsys, "evaluate", str(run.folder))


# ------------------------------------------------------------------------------------------------- comparing and tuning


@pytest.mark.parametrize(("name", "metric"), [("queries", "NDCG@10"), *slow(("list", "AP"))])
def test_losses_are_compared_by_the_metric_of_the_table(tables, tmp_path, monkeypatch, capsys, name, metric):
    monkeypatch.setattr(comparing, "Children", Here())
    words = settings(tables[name], "trainer.max_epochs=1")
    assert main(["compare", "loss=squared_error,roc_auc", "seeds=0,1", *words, "-o", str(tmp_path)]) == 0
    told, content = capsys.readouterr().out, json.loads((tmp_path / "compare.json").read_text())
    assert f"| {metric}, against squared_error |" in told
    untrained = [Run(tmp_path / f"squared_error-seed{seed}").read_untrained()[metric] for seed in (0, 1)]
    assert content["untrained"]["untrained"][metric] == [100 * value for value in untrained]
    assert "| untrained " in told and "| untrained " in (tmp_path / "compare.md").read_text()
    values = content["values"]
    assert {loss: len(each[metric]) for loss, each in values.items()} == {"squared_error": 2, "roc_auc": 2}
    assert (tmp_path / "compare.html").is_file()


def test_settings_of_a_loss_and_of_the_model_are_searched_on_folds(tables, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparing, "Children", Here())
    words = settings(tables["list"], "trainer.max_epochs=1")
    own = ("space.optimizer.lr=log(1e-3,1e-1)", "space.model.hidden=[8],[4,4]")
    words = [word for word in words if not word.startswith(("optimizer.lr", "model.hidden"))]
    search = ("tune", "loss=info_nce", "trials=2", "folds=2", "seeds=0", *own)
    assert main([*search, *words, "-o", str(tmp_path)]) == 0
    assert "Chosen by AP" in capsys.readouterr().out
    outcome = json.loads((tmp_path / "tune.json").read_text())
    assert set(outcome["spaces"]["info_nce"]) == {
        *("loss.tau", "loss.pull", "model.dropout", "model.hidden", "optimizer.lr")
    }
    assert len(outcome["winners"]["info_nce"]["folds"]) == 2
    (final,) = json.loads((tmp_path / "final" / "compare.json").read_text())["values"].values()
    assert final["AP"]


# ------------------------------------------------------------------------------------------------------------- the page


def test_a_page_has_curves_of_one_list_and_a_table_of_queries(finished):
    one, queries = (finished[name].page.read_text(encoding="utf-8") for name in ("list", "queries"))
    assert (
        all(part in one for part in ('id="ranking"', 'id="rows"', "Precision and recall")) and 'id="queries"' not in one
    )
    assert 'id="queries"' in queries and not any(part in queries for part in ('id="ranking"', 'id="rows"'))


def test_a_page_of_a_run_without_its_scores_says_so(finished, tmp_path):
    run = copied(finished["list"], tmp_path / "run")
    run.scores.write_bytes(b"")
    [content] = read_runs([run.folder])
    assert any("scores.npz" in note for note in content.notes)
    assert 'id="ranking"' not in write_report(tmp_path / "page.html", [content]).read_text(encoding="utf-8")


def test_check_finds_scores_that_were_changed(finished, tmp_path):
    run = copied(finished["list"], tmp_path / "run")
    content = bytearray(run.scores.read_bytes())
    content[len(content) // 2] ^= 1
    run.scores.write_bytes(content)
    assert set(check(run.folder).wrong) == {"scores.npz"}


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("name", "words", "named"),
    [
        ("list", ["loss=smoothap"], "smooth_ap"),
        ("list", ["loss=pml/triplet"], "pml/triplet"),
        ("list", ["model=mpl"], "mlp"),
        ("list", ["model.hidden=[0]"], "model.hidden"),
        ("list", ["model.dropout=2"], "model.dropout"),
        ("list", ["data.validation=1.5"], "data.validation"),
        ("list", ["data.load.label=lable"], "lable"),
        ("list", ["data.load.query=qid"], "qid"),
        ("list", ["data.load.drop=[colour]"], "colour"),
        ("list", ["sampler.batch_size=1"], "sampler.batch_size"),
        ("list", ["evaluation.select=APP"], "APP"),
        ("list", ["evaluation.select=NDCG@10"], "NDCG@10"),
        ("list", ["evaluation.split=val"], "fold="),
        ("list", ["fold=1/3"], "evaluation.split=val"),
        ("queries", ["loss=fastap"], "data.load.positive"),
        ("queries", ["loss=cross_entropy"], "data.load.positive"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line_that_names_it_and_leaves_no_folder(
    tables, tmp_path, capsys, name, words, named
):
    error = fails(capsys, "train", *settings(tables[name], *words), f"out={tmp_path / 'run'}")
    assert named in error and not (tmp_path / "run").exists()


def test_a_task_that_is_not_known_is_told_which_there_are(capsys):
    assert "scores" in fails(capsys, "train", "task=score")


def test_a_loss_that_diverges_is_told_and_no_result_is_written(tables, tmp_path, capsys):
    words = settings(tables["list"], "loss=squared_error", "optimizer.lr=1e30", f"out={tmp_path / 'run'}")
    assert main(["train", *words]) == 2
    assert "learning rate" in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Run(tmp_path / "run").finished


def test_several_processes_are_refused(tables):
    with pytest.raises(ConfigError, match="trainer.devices=2"):
        task.build(of_settings(tables["list"], "trainer.devices=2"), True)


def test_a_loss_that_takes_no_lists_is_refused(tables):
    config = of_settings(tables["list"])
    config.loss = {"_target_": "pytorch_metric_learning.losses.TripletMarginLoss"}
    with pytest.raises(ConfigError, match="from_lists"):
        task.build(config, True)
