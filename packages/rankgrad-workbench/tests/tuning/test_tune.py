"""Tuning: every loss has the same budget, nothing else decides what is tried, and a search that was stopped goes on."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from marks import slow, slow_unless
from small_runs import make_photos, small

from rankgrad.evaluation.statistics import holm
from rankgrad_workbench.cli import main
from rankgrad_workbench.files.folders import LinkError
from rankgrad_workbench.runs import compare as compare_module
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, compose, options
from rankgrad_workbench.tasks.retrieval import building
from rankgrad_workbench.tasks.retrieval import task as retrieval
from rankgrad_workbench.tasks.retrieval.building import load_table
from rankgrad_workbench.tasks.retrieval.settings import settings_of as typed_settings
from rankgrad_workbench.tuning import space as space_module
from rankgrad_workbench.tuning import study as study_module
from rankgrad_workbench.tuning import tune as tune_module
from rankgrad_workbench.tuning.space import Choice, NumberRange, read, settings_of, space_of
from rankgrad_workbench.tuning.tune import tune

pytestmark = pytest.mark.usefixtures("no_page")

TWO = ("loss=supap,pml/multi_similarity", "recipe=small", "data=glyphs", "threads=1")


class Made:
    """`Children` that train nothing: a run's value is a function of its settings, known at once.

    Attributes:
        calls: settings of the runs that were begun.
        last: runs after which the command is interrupted.
        fails: which runs fail.
        shares: metric of a run -> share of `value_of` that it has.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, str]] = []
        self.folders: list[str] = []
        self.last: float = math.inf
        self.fails: Callable[[dict[str, str]], bool] = lambda settings: False
        self.begun: list[Ended] = []
        self.shares: dict[str, float] = {"R@1": 1, "mAP@R": 1, "AP": 1}
        self.draw = random.Random(0)

    def __call__(self) -> Made:
        return self

    def __enter__(self) -> Made:
        return self

    def __exit__(self, *_: object) -> None:
        self.begun.clear()

    def start(self, words: Sequence[str], *, log: Any) -> Ended:
        settings = dict(word.split("=", 1) for word in words[1:])
        self.calls.append(settings)
        self.folders.append(settings["out"])
        failed = self.fails(settings)
        if failed:
            log.write("rankgrad: it went wrong\n")
        self.begun.append(Ended(settings, 1 if failed else 0))
        return self.begun[-1]

    def wait(self) -> Ended:
        if self.last <= 0:
            raise KeyboardInterrupt
        self.last -= 1
        ended = self.begun.pop(self.draw.randrange(len(self.begun)))  # which one ends first is chance
        if ended.returncode == 0:
            folder = Path(ended.settings["out"])
            values = {name: share * value_of(ended.settings) for name, share in self.shares.items()}
            (folder / "facts.json").write_text(json.dumps({"steps": 100, "train_seconds": 2.0}))
            (folder / "after.json").write_text(json.dumps({"values": values}))
        return ended


class Ended:
    def __init__(self, settings: dict[str, str], returncode: int) -> None:
        self.settings, self.returncode = settings, returncode


def value_of(settings: dict[str, str]) -> float:
    """Best at a rate of .01, tau of .02 and no head, different by fold and seed."""
    value = 0.6 - 0.05 * abs(math.log(float(settings["optimizer.lr"]) / 0.01))
    if "loss.tau" in settings:
        value -= 0.05 * abs(math.log(float(settings["loss.tau"]) / 0.02))
    value += 0.02 * (settings.get("model.head") == "none")
    value += 0.03 * int(settings.get("fold", "0/3")[0])
    return value + random.Random(f"{settings['seed']} {settings['loss']}").uniform(0, 0.01)


@cache
def _composed(settings: tuple[str, ...], tree: str) -> Any:
    return compose(settings, tree)


def composed(settings: Sequence[str], tree: str = "train") -> Any:
    """Settings that are composed once for all tests: that takes longer than these searches."""
    return _composed(tuple(settings), tree)


def space(loss: str, settings: Sequence[str], given: dict[str, str] | None = None) -> dict[str, Any]:
    return dict(space_of(loss, settings, compose(settings), given or {}))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    runner = Made()
    monkeypatch.setattr(compare_module, "Children", runner)
    for module in (space_module, tune_module):
        monkeypatch.setattr(module, "compose", composed)
    monkeypatch.setattr(tune_module, "_check_data", lambda config: None)  # these runs read no data
    return runner


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def without_work(out: Path) -> list[dict[str, str]]:
    """Trials without steps and time: folds that are trained beside one another may be trained in vain."""
    return [{key: value for key, value in row.items() if key not in ("steps", "seconds")} for row in rows(out)]


@pytest.mark.parametrize("name", ["journal.log", "trials", "trials/supap/000/fold1/log.txt", "final"])
def test_a_link_in_the_folder_of_a_search_is_not_written_through(made, tmp_path, name):
    valued, out = tmp_path / "valued", tmp_path / "out"
    valued.mkdir()
    (valued / "rc").write_text("mine")
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(valued / "rc" if "." in name else valued)
    with pytest.raises(LinkError, match=f"{out / name} is a link"):
        tune([*TWO, "trials=1", "folds=2", "seeds=0"], out)
    assert {path.name: path.read_text() for path in valued.iterdir()} == {"rc": "mine"}


# ---------------------------------------------------------------------------------------------------- what is searched


# Always: a composition with several parameters, and proxies.
QUICK = ("roadmap", "pml/proxy_anchor")


@cache
def glyphs() -> Any:
    return load_table(typed_settings(compose([])))


def test_every_loss_has_a_space():
    assert set(options("loss")) <= set(space_module._listed()["losses"])


@pytest.mark.parametrize("loss", slow_unless(QUICK, options("loss")))
def test_the_space_of_a_loss_holds_its_defaults_and_works_at_both_ends(loss, monkeypatch):
    words = ["recipe=small", f"loss={loss}", "sampler.classes_per_batch=4"]
    base = compose(words)
    monkeypatch.setattr(space_module, "_check", lambda *_: None)  # what is made below has been checked
    monkeypatch.setattr(building, "load_table", lambda *_: glyphs())
    found = dict(space_of(loss, words, base, {}))
    shared = set(space_module._listed()["shared"])
    assert shared - set(found) <= {"memory", "model.hidden", "model.dropout"} and len(found) > len(shared & set(found))
    defaults = {name: values.default(name, base) for name, values in found.items()}
    assert None not in defaults.values()
    chosen = compose([*words, *settings_of(found, defaults, base)])
    assert [chosen[name] for name in ("loss", "model", "memory", "optimizer")] == [
        base[name] for name in ("loss", "model", "memory", "optimizer")
    ]
    for end in (0, -1):
        config = compose([*words, *settings_of(found, {k: v.ends()[end] for k, v in found.items()}, base)])
        task = retrieval.build(config, quiet=True)
        made = task.module.loss.loss
        embeddings = torch.randn(16, task.settled["derived.embedding_size"], requires_grad=True)
        remembers = {"ids": torch.arange(16)} if config.memory else {}
        assert made(embeddings, torch.arange(4).repeat_interleave(4), **remembers).isfinite()


@pytest.mark.parametrize(
    ("loss", "setting"),
    [
        ("supap", "loss.tau"),
        *slow(*((loss, "loss.tau") for loss in ("smooth_ap", "supndcg", "ndcg", "pnp", "info_nce"))),
        *slow(("recall_at_k", "loss.tau1")),
    ],
)
def test_temperatures_of_logits_go_up_to_2_and_hold_the_default(loss, setting):
    words = ["data=table", "data.root=rows.csv", f"loss={loss}"]
    base = compose(words, "scores")
    found = space_of(loss, words, base, {}, "scores")
    assert found[setting].ends()[-1] == 2 > space(loss, [f"loss={loss}"])[setting].ends()[-1]
    assert all(values.default(name, base) is not None for name, values in found.items())


def test_what_the_command_gives_is_not_searched_and_what_it_names_is():
    given = ["recipe=small", "optimizer.lr=0.001", "memory=none"]
    searched = {"loss.tau": "0.1,0.2", "seed": "int(0,3)"}
    found = space("supap:rho=10", [*given, "loss=supap", "loss.rho=10"], searched)
    assert "optimizer.lr" not in found and "memory" not in found and "loss.rho" not in found
    assert found["loss.tau"] == Choice(("0.1", "0.2")) and found["seed"] == NumberRange("int", 0, 3)
    assert "loss.tau" not in space("pml/supcon", [*given, "loss=pml/supcon"], {"loss.tau": "0.1,0.2"})


def test_values_become_settings_and_options_bring_their_own():
    base = compose(["optimizer.lr=0.01", "loss=supap"])
    made = {
        "optimizer.lr": read("times(0.1,10)", ""),
        "memory": read("none, sum:weight=0.3+size=64", ""),
        "model.head": read("linear, none:model.embedding_size=null", ""),
        "loss.tau": read("log(0.001,1)", ""),
    }
    chosen = {"optimizer.lr": 2.0, "memory": "sum:weight=0.3+size=64", "loss.tau": 0.5}
    words = settings_of(made, {**chosen, "model.head": "none:model.embedding_size=null"}, base)
    own = ["memory=sum", "memory.weight=0.3", "memory.size=64"]
    head = ["model.head=none", "model.embedding_size=null"]
    assert words == [*own, "optimizer.lr=0.02", *head, "loss.tau=0.5"]
    assert compose(["loss=supap", *words]).memory.size == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log(0.1)", "space.x must be log(LOW,HIGH), range(LOW,HIGH), int(LOW,HIGH), times(LOW,HIGH) or values"),
        ("lg(0.1,1)", "got 'lg(0.1,1)'"),
        ("log(0,1)", "log(LOW,HIGH) needs two numbers > 0, LOW below HIGH"),
        ("log(a,b)", "LOW below HIGH; got 'log(a,b)'"),
        ("log(nan,1)", "needs two numbers > 0, LOW below HIGH"),
        ("range(1,1)", "needs two numbers, LOW below HIGH"),
        ("range(0,inf)", "needs two numbers"),
        ("int(0.5,3)", "int(LOW,HIGH) needs two whole numbers, LOW below HIGH"),
        ("a,,b", "none of them empty or repeated"),
        ("a,a", "none of them empty or repeated"),
        ("", "none of them empty or repeated"),
    ],
)
def test_a_space_that_cannot_be_read_says_what_would_do(text, message):
    with pytest.raises(ConfigError) as error:
        read(text, "x")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "no loss is given"),
        (["loss=supap,supap"], "each loss may be named once"),
        (["loss=supapp"], "unknown loss 'supapp'; did you mean 'supap'"),
        (["loss=supap", "trials=0"], "trials must be an integer >= 1 and <= 4294967295; got '0'"),
        (["loss=supap", "folds=1"], "folds must be an integer >= 2 and <= 4294967295; got '1'"),
        (["loss=supap", "search_seed=4294967296"], "search_seed must be an integer >= 0 and <= 4294967295"),
        (["loss=supap", "metric=mAP"], "unknown metric 'mAP'; did you mean 'AP'? Known: AP, H-AP"),
        (["loss=supap", "seeds=x"], "seeds must be integers"),
        (["loss=supap", "seeds=0,0"], "different, >= 0"),
        (["loss=supap", "seeds=-1"], "different, >= 0"),
        (["loss=supap", "seed=1"], "seed= is set by the search"),
        (["loss=supap", "evaluation.split=test"], "evaluation.split= is set by the search"),
        (["loss=supap", "space.seed=int(0,9)"], "space.seed= is set by the search"),
        (["loss=supap", "space.evaluation.split=val,test"], "space.evaluation.split= is set by the search"),
        (["loss=supap", "space.out=a,b"], "space.out= is set by the search"),
        (["loss=supap", "final.fold=1/2"], "final.fold= is set by the search"),
        (["loss=supap", "space.loss.tua=log(1,2)"], "unknown setting in space.loss.tua"),
        (["loss=supap", "space.optimizer.rate=log(1,2)"], "unknown setting 'optimizer.rate' in space."),
        (["loss=supap", "space.loss.tau=log(1,2)", "loss.tau=1"], "both fixed and searched"),
        (["loss=supap", "space.data.name=times(1,2)"], "data.name is 'glyphs'"),
        (["loss=supap", "space.model.head=linear,cubic", "final.optimizer.rate=1"], "unknown setting 'optimizer.rate'"),
        (["loss=supap", "data=folder"], "data.root must be given"),
    ],
)
def test_what_does_not_fit_is_said_before_the_first_run(made, tmp_path, settings, message):
    with pytest.raises(ConfigError) as error:
        tune(settings, tmp_path / "out")
    assert message in str(error.value)
    assert made.calls == [] and not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------------ budget, order


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data=text", "data.root=few.csv"], "3 folds need at least 6 training classes, two in each; few has 3"),
        (["data=text", "data.root=several.csv", "data.load.separator=|"], "fold=3/3 needs one class per text"),
        (["data=text", "data.root=none.csv"], "data.root=none.csv does not exist in"),
        (["task=scores", "data.root=rows.csv"], "holding out rows needs two relevant .* got 1 relevant"),
    ],
)
def test_data_that_cannot_be_divided_is_said_before_the_first_run(tmp_path, monkeypatch, settings, message):
    few = [f"{n} {label},{label}\n" for label in "abcdef" for n in "12"]
    (tmp_path / "few.csv").write_text("".join(["text,label\n", *few]))
    (tmp_path / "several.csv").write_text("text,label,split\na,x|y,train\nb,x,test\n")
    rows = [f"{row},{row % 4 == 0:d},{split}\n" for split in ("train", "test") for row in range(8)]
    (tmp_path / "rows.csv").write_text("".join(["value,label,split\n", *rows]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune_module, "search", lambda *_: pytest.fail("a trial began"))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tune(["loss=smooth_ap", "folds=3", *settings], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_loss_has_the_same_budget_and_pruned_trials_count(made, tmp_path):
    outcome = tune([*TWO, "trials=14", "folds=3", "seeds=none"], tmp_path)
    found = rows(tmp_path)
    for loss, trials in outcome.trials.items():
        states = [row["state"] for row in found if row["loss"] == loss]
        assert len(states) == len(trials) == 14 and outcome.budgets[loss]["trials"] == 14
        assert states.count("pruned") == outcome.budgets[loss]["pruned"] > 0
        assert [trial.number for trial in trials] == list(range(14))
        for trial in trials:
            assert len(trial.folds) == 3 if trial.state == "complete" else len(trial.folds) < 3
            assert trial.steps == 100 * len(trial.folds) and trial.seconds == 2.0 * len(trial.folds)
        assert outcome.budgets[loss]["steps"] == sum(trial.steps for trial in trials)
    assert sum(budget["steps"] for budget in outcome.budgets.values()) == 100 * len(made.calls)
    assert len(set(made.folders)) == len(made.folders)


def test_trials_look_at_held_out_training_classes_only_and_the_defaults_come_first(made, tmp_path):
    tune([*TWO, "trials=3", "folds=2", "seeds=none"], tmp_path)
    for settings in made.calls:
        assert settings["fold"] in ("1/2", "2/2") and settings["evaluation.split"] == "val"
    first = made.calls[0]
    assert float(first["loss.tau"]) == 0.01 and float(first["optimizer.lr"]) == 5e-3 and first["memory"] == "none"


@pytest.mark.parametrize(
    ("shares", "metric"),
    [({"AP": 0.5, "MRR": 0.2, "NDCG@10": 1.0}, "NDCG@10"), ({"ROC AUC": 1.0, "AP": 0.5}, "AP")],
)
def test_the_first_main_metric_of_the_task_that_its_runs_compute_is_maximised(made, tmp_path, shares, metric):
    made.shares = shares
    words = ["task=scores", "data=table", f"data.root={tmp_path / 'rows.csv'}", "threads=1", "seeds=none"]
    search = ["loss=info_nce,list_net", "trials=2", "folds=2"]
    made.last = 3
    with pytest.raises(KeyboardInterrupt):
        tune([*words, *search], tmp_path / "out")
    made.last = math.inf
    outcome = tune([*words, *search], tmp_path / "out")
    assert outcome.metric == metric and metric in rows(tmp_path / "out")[0]
    calls = [call for call in made.calls if call["loss"] == "list_net"]
    found = [shares[metric] * next(value_of(call) for call in calls if call["fold"] == fold) for fold in ("1/2", "2/2")]
    assert outcome.trials["list_net"][0].folds == pytest.approx(found)


def test_a_metric_that_the_runs_do_not_compute_is_told_with_those_that_they_do(made, tmp_path):
    with pytest.raises(ConfigError, match="do not compute H-AP; give metric= one of R@1, mAP@R, AP"):
        tune([*TWO, "metric=H-AP", "trials=1", "folds=2", "seeds=none"], tmp_path)


def test_the_best_is_that_of_the_trials_on_all_folds_and_the_search_is_better_than_the_defaults(made, tmp_path):
    outcome = tune([*TWO, "trials=20", "folds=3", "seeds=none"], tmp_path)
    for loss, winner in outcome.winners.items():
        whole = [trial for trial in outcome.trials[loss] if trial.state == "complete"]
        assert winner.value == max(trial.value for trial in whole) > outcome.trials[loss][0].value
        assert winner.value == pytest.approx(sum(winner.folds) / 3)


def test_what_is_tried_depends_neither_on_the_number_of_jobs_nor_on_who_ends_first(made, tmp_path):
    for jobs in (1, 2, 5):
        made.draw = random.Random(jobs)
        tune([*TWO, "trials=12", "folds=3", "seeds=none"], tmp_path / str(jobs), jobs)
    assert without_work(tmp_path / "1") == without_work(tmp_path / "2") == without_work(tmp_path / "5")
    tune([*TWO, "trials=12", "folds=3", "seeds=none", "search_seed=1"], tmp_path / "other")
    assert without_work(tmp_path / "other") != without_work(tmp_path / "1")


@pytest.mark.parametrize("stops", [[0], [1, 1, 1], [7, 16], [30]])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_search_that_was_stopped_ends_like_one_that_was_not(made, tmp_path, stops, jobs):
    words = [*TWO, "trials=10", "folds=3", "seeds=none"]
    tune(words, tmp_path / "whole")
    for last in stops:
        made.last = last
        with pytest.raises(KeyboardInterrupt):
            tune(words, tmp_path / "cut", jobs)
    made.last = math.inf
    with (tmp_path / "cut" / "journal.log").open("a") as file:
        file.write('{"op_code":6,"worker_i')  # a process that was killed in the middle of a line
    tune(words, tmp_path / "cut", jobs)
    assert without_work(tmp_path / "cut") == without_work(tmp_path / "whole")


def test_a_longer_search_goes_on_and_a_finished_one_trains_nothing(made, tmp_path):
    tune([*TWO, "trials=4", "folds=2", "seeds=none"], tmp_path)
    begun = len(made.calls)
    tune([*TWO, "trials=4", "folds=2", "seeds=none"], tmp_path)
    assert len(made.calls) == begun
    outcome = tune([*TWO, "trials=6", "folds=2", "seeds=none"], tmp_path)
    assert {len(trials) for trials in outcome.trials.values()} == {6} and len(made.calls) <= begun + 8
    tune([*TWO, "trials=6", "folds=2", "seeds=none"], tmp_path / "at once")
    assert without_work(tmp_path) == without_work(tmp_path / "at once")


def test_another_space_or_other_settings_need_another_folder(made, tmp_path, monkeypatch):
    words = [*TWO, "trials=1", "folds=2", "seeds=none"]
    tune(words, tmp_path)
    for other in ("folds=3", "metric=AP", "search_seed=1", "space.loss.tau=0.1,0.2", "trainer.max_epochs=1"):
        with pytest.raises(ConfigError, match="other settings: .* --out"):
            tune([*words, other], tmp_path)
    listed = space_module._listed()
    monkeypatch.setitem(listed["losses"]["supap"], "loss.tau", "log(0.1, 1)")
    with pytest.raises(ConfigError, match=re.escape("supap was searched in another space: loss.tau (then")):
        tune(words, tmp_path)


# ------------------------------------------------------------------------------------------------------------ failures


def test_a_trial_that_fails_counts_and_the_search_goes_on(made, tmp_path):
    made.fails = lambda settings: settings["model.head"] == "none" and settings["fold"] == "2/2"
    outcome = tune([*TWO, "trials=8", "folds=2", "seeds=none"], tmp_path)
    for loss, trials in outcome.trials.items():
        failed = [trial for trial in trials if trial.state == "failed"]
        assert len(trials) == 8 and len(failed) == outcome.budgets[loss]["failed"] > 0
        assert outcome.winners[loss].state == "complete"


def test_a_loss_of_which_nothing_works_is_given_up_and_the_same_command_tries_it_again(made, tmp_path):
    made.fails = lambda settings: settings["loss"] == "supap"
    words = [*TWO, "trials=3", "folds=2", "seeds=none"]
    with pytest.raises(ConfigError, match="supap: trial 0, fold 1: .*it went wrong"):
        tune(words, tmp_path)
    assert len([row for row in rows(tmp_path) if row["loss"] == "pml/multi_similarity"]) == 3
    made.fails = lambda settings: False
    assert {len(trials) for trials in tune(words, tmp_path).trials.values()} == {3}


STUDY = '{"op_code": 0, "worker_id": "", "study_name": "a", "directions": [2]}\n'
NOTED = '{"op_code": 2, "worker_id": "", "study_id": 0, "user_attr": {"space": 1}}\n'
TRIAL = '{"op_code": 4, "worker_id": "", "study_id": 0, "datetime_start": "2026-01-01T00:00:00.000000"}\n'
FOLDED = '{"op_code": 8, "worker_id": "", "trial_id": 0, "user_attr": {"folds": ["a"]}}\n'


JOURNALS = {
    "deep": "[" * 10**5 + "\n",
    "unknown": '{"op_code": 99}\n',
    "nothing": "null\n",
    "list": "[1]\n",
    "empty": '{"op_code": 0}\n',
    "last line": "{}" + STUDY,
    "no text": "\xff\n",
    "directions": STUDY.replace("[2]", "7"),
}


@pytest.mark.parametrize("text", JOURNALS.values(), ids=JOURNALS)
def test_a_damaged_journal_is_named_with_what_to_do(tmp_path, text):
    (tmp_path / "journal.log").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=f"{tmp_path}/journal.log is damaged.* --out"):
        study_module.storage(tmp_path / "journal.log")


def test_a_journal_that_lost_a_line_is_refused(made, tmp_path):
    words = [*TWO, "trials=1", "folds=2", "seeds=none"]
    tune(words, tmp_path)
    path, begun = tmp_path / "journal.log", len(made.calls)
    lines = path.read_text().splitlines(keepends=True)
    lost = next(line for line in lines if '"param_name":"optimizer.lr"' in line)
    path.write_text("".join(line for line in lines if line != lost))
    with pytest.raises(ConfigError, match="journal of the search is damaged: trial 0 of supap has no optimizer.lr"):
        tune(words, tmp_path)
    assert len(made.calls) == begun


def test_a_journal_that_is_whole_is_read(tmp_path):
    path = tmp_path / "journal.log"
    path.write_text(STUDY + NOTED.replace("1}", "{}}") + TRIAL + FOLDED.replace('["a"]', "[0.5]") + "half")
    (study,) = study_module.storage(path).get_all_studies()
    assert study.study_name == "a" and not path.read_text().endswith("half")


# ------------------------------------------------------------------------------------------------------- the comparison


def test_winners_are_compared_on_the_test_classes_with_corrected_p_values(made, tmp_path):
    words = ["loss=supap,pnp,pml/multi_similarity", *TWO[1:], "trials=6", "folds=2", "seeds=0..5"]
    outcome = tune([*words, "final.recipe=default"], tmp_path)
    finals = [settings for settings in made.calls if "fold" not in settings]
    assert len(finals) == 18 and {settings["seed"] for settings in finals} == set("012345")
    assert all("evaluation.split" not in settings and settings["recipe"] == "default" for settings in finals)
    winner = outcome.winners["supap"]
    rate = 2.5e-3 * winner.chosen["optimizer.lr"]  # the factor is what was chosen: the default recipe has another rate
    mine = [settings for settings in finals if settings["loss"] == "supap"]
    assert all(float(settings["optimizer.lr"]) == pytest.approx(rate, rel=1e-5) for settings in mine)
    compared = json.loads((tmp_path / "final" / "compare.json").read_text())
    assert len(compared["values"][f"supap #{winner.number}"]["mAP@R"]) == 6
    chances = holm([test["p"] for test in compared["differences"].values()])
    text = (tmp_path / "tune.md").read_text()
    assert "| p (Holm) |" in text and "95 % interval" in text and text.count("On the test data") == 1
    assert all(f" {chance:.2g} " in text for chance in chances)
    assert json.loads((tmp_path / "tune.json").read_text())["budget"]["supap"]["trials"] == 6


def test_runs_that_are_missing_are_not_replaced_by_those_of_other_seeds(made, tmp_path):
    lost = (("supap", "0"), ("pml/multi_similarity", "2"))  # as many seeds of both, but not the same ones
    made.fails = lambda settings: "fold" not in settings and (settings["loss"], settings["seed"]) in lost
    words = [*TWO, "trials=1", "folds=2", "seeds=0,1,2"]
    for _ in range(2):  # the second search begins with the comparison of the first
        with pytest.raises(ConfigError, match="these runs failed"):
            tune(words, tmp_path)
    written = json.loads((tmp_path / "final" / "compare.json").read_text())
    assert {len(columns["mAP@R"]) for columns in written["values"].values()} == {2}
    assert [test["n"] for test in written["differences"].values()] == [1] or not written["differences"]


def test_with_few_seeds_no_p_value_is_shown_and_optuna_finds_what_mattered(made, tmp_path):
    outcome = tune([*TWO, "trials=12", "folds=3", "seeds=0,1,2"], tmp_path)
    assert "p (Holm)" not in outcome.text() and "p-value" in outcome.text() and "95 % interval" not in outcome.text()
    for study in study_module.storage(tmp_path / "journal.log").get_all_studies():  # what optuna-dashboard reads
        found = optuna.load_study(study_name=study.study_name, storage=study_module.storage(tmp_path / "journal.log"))
        assert sum(optuna.importance.get_param_importances(found).values()) == pytest.approx(1)


def test_the_tables_of_a_search_that_has_hardly_begun_are_written(made, tmp_path):
    made.last = 3
    words = [*TWO, "trials=2", "folds=2", "seeds=none"]
    with pytest.raises(KeyboardInterrupt):
        tune(words, tmp_path)
    made.last = math.inf
    made.fails = lambda settings: settings["loss"] == "pml/multi_similarity"
    with pytest.raises(ConfigError, match="given up"):
        tune([*words[1:], "loss=pml/multi_similarity"], tmp_path / "other")
    made.fails = lambda settings: False
    assert "On the test" not in tune(words, tmp_path).text()


@pytest.mark.slow
def test_the_command_trains_in_processes_of_its_own_and_prints_the_tables(tmp_path, capsys):
    photos = make_photos(tmp_path / "photos", classes=16)
    words = [
        "loss=supap,pml/multi_similarity",
        "trials=2",
        "folds=2",
        "seeds=0,1",
        "space.model.head=linear,layer_norm",
    ]
    settings = small(photos, "trainer.max_epochs=1", "sampler.classes_per_batch=2", "sampler.batches_per_epoch=2")
    out = tmp_path / "out"
    assert main(["tune", *words, *settings, "-j", "2", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "On the test data" in shown and "report: " in shown and f"optuna-dashboard {out / 'journal.log'}" in shown
    assert [row["state"] for row in rows(out)] == ["complete"] * 4
    assert Run(out / "trials" / "supap" / "000" / "fold1").finished
    assert main(["tune", *words, *settings, "folds=3", "-o", str(out)]) == 2
