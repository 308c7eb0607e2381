"""A module of one's own on a table: trained in place, resumed, and told what is wrong with it."""

from __future__ import annotations

import pytest
import torch
from marks import slow_unless
from small_tables import by_query, one_list
from torch import nn

from rankgrad import fit_scores, losses
from rankgrad_workbench.cli import main
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.settings import ConfigError
from rankgrad_workbench.tasks.scores import ScoreTable, load_ranker, load_table

QUICK = {
    **{"trainer.max_epochs": 2, "sampler.batch_size": 64, "sampler.queries_per_batch": 8, "data.encoding.fewest": 2},
    **{"evaluation.bootstrap": 20, "health": False},
}


def net(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> ScoreTable:
    return load_table(one_list(tmp_path_factory.mktemp("rows") / "rows.csv"))


@pytest.mark.parametrize("loss", slow_unless({"cross_entropy"}, ["cross_entropy", losses.SmoothAPLoss(tau=0.1)]))
def test_a_module_is_trained_in_place_and_ends_with_the_weights_of_the_run(table, tmp_path, loss):
    module = net(6)  # age, height, height is missing, and three cities
    run = fit_scores(table, module, loss, out=tmp_path / "run", settings=QUICK, quiet=True)
    expected = load_ranker(run.weights, net(6)).score(table.part("test"))
    torch.testing.assert_close(torch.from_numpy(read_npz(run.scores)["score"]), expected)
    torch.testing.assert_close(load_ranker(run.weights, module).score(table.part("test")), expected)


def test_a_function_of_the_width_and_a_table_in_memory_without_a_split_will_do(tmp_path):
    columns = read_npz(by_query(tmp_path / "rows.npz"))
    given = ScoreTable.of(columns["X"], columns["y"], columns["query"])
    run = fit_scores(given, net, "list_net", out=tmp_path / "run", settings=QUICK, quiet=True)
    assert 0 < run.read_values()["NDCG@10"] <= 1


def test_a_run_goes_on_with_more_epochs_and_gives_back_the_weights_of_a_finished_one(table, tmp_path):
    out = tmp_path / "run"
    first = fit_scores(table, net, out=out, settings=QUICK, quiet=True)
    with pytest.raises(ConfigError, match="resume=True"):
        fit_scores(table, net, out=out, settings=QUICK, quiet=True)
    before = first.weights.read_bytes()
    module = net(6)
    fit_scores(table, module, out=out, resume=True, settings=QUICK, quiet=True)
    assert first.weights.read_bytes() == before
    kept = load_ranker(first.weights, net(6)).model.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
    longer = fit_scores(table, net, out=out, resume=True, settings={**QUICK, "trainer.max_epochs": 3}, quiet=True)
    assert longer.read_facts()["epochs"] == 3
    with pytest.raises(ConfigError, match="optimizer.lr"):
        fit_scores(table, net, out=out, resume=True, settings={**QUICK, "optimizer.lr": 1.0}, quiet=True)


def test_a_file_and_keywords_are_enough_and_the_network_is_that_of_the_command(tmp_path, capsys):
    one_list(tmp_path / "rows.csv")
    few = {name: value for name, value in QUICK.items() if "max_epochs" not in name and "batch_size" not in name}
    own = {"epochs": 3, "batch_size": 32, "lr": 0.01, "validation": 0.3, "test_fraction": 0.5, "seed": 1}
    run = fit_scores(tmp_path / "rows.csv", out=tmp_path / "run", **own, settings=few, quiet=True)
    assert run.read_facts()["epochs"] == 3 and len(read_npz(run.scores)["score"]) == 150
    config = run.config.read_text()
    for line in ("lr: 0.01", "batch_size: 32", "validation: 0.3", "seed: 1", "kind: mlp"):
        assert line in config
    assert load_ranker(run.weights).score(load_table(tmp_path / "rows.csv")).shape == (300,)
    assert main(["train", f"resume={run.folder}", "trainer.max_epochs=4"]) != 0
    assert "started in Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda width: nn.Linear(width, 1), r"\[2\]; got \[2, 1\]"),
        (lambda width: nn.Linear(width, 3), r"\[2\]; got \[2, 3\]"),
        (lambda width: net(width).requires_grad_(False), "requires_grad"),
        (lambda width: None, "got None"),
    ],
)
def test_a_model_that_gives_no_scores_is_told_before_the_training(table, tmp_path, model, named):
    with pytest.raises((ValueError, TypeError), match=named):
        fit_scores(table, model, out=tmp_path / "run", settings=QUICK, quiet=True)
    assert not (tmp_path / "run").exists()


def test_what_is_no_table_no_label_or_no_loss_of_lists_is_told(table, tmp_path):
    with pytest.raises(TypeError, match="ScoreTable"):
        fit_scores([[1.0]], net)
    with pytest.raises(TypeError, match="relevance"):
        fit_scores(ScoreTable.of([[1.0], [2.0]]), net)
    with pytest.raises(ConfigError, match="from_lists"):
        fit_scores(table, net, nn.MSELoss(), out=tmp_path / "run", settings=QUICK, quiet=True)
    with pytest.raises(ConfigError, match="loss"):
        fit_scores(table, net, out=tmp_path / "run", settings={"loss": "supap"}, quiet=True)
