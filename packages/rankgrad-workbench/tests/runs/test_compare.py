"""Comparing losses: one table from the same data, seeds and budget; the same command again goes on."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import statistics
from pathlib import Path

import pytest
from children_here import Copied, Here
from forks import start_by_fork
from marks import slow, slow_unless
from omegaconf import OmegaConf
from scipy import stats
from small_runs import die_after_writes, make_photos, small, train

from rankgrad.evaluation import Report
from rankgrad_workbench.cli import main
from rankgrad_workbench.files.folders import LockedError, lock
from rankgrad_workbench.runs import compare as compare_module
from rankgrad_workbench.runs.children import Children
from rankgrad_workbench.runs.compare import compare, folders, folders_of, own_settings, shared
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, compose, load

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    runner = Here()
    monkeypatch.setattr(compare_module, "Children", runner)
    return runner


@pytest.fixture(scope="module")
def finished(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    return train(*small(photos, "loss=pnp", "trainer.max_epochs=1"), f"out={out}").folder


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, finished: Path) -> Copied:
    """What is compared are copies of one run: to train each takes longer than to compare them."""
    runner = Copied(finished)
    monkeypatch.setattr(compare_module, "Children", runner)
    return runner


def test_a_comparison_trains_every_loss_with_every_seed_and_the_same_settings(photos, tmp_path, here):
    settings = ["loss=roadmap,pnp", "seeds=0,1", *small(photos, "trainer.max_epochs=1")]
    table = compare(settings, tmp_path)
    folders = ["roadmap-seed0", "roadmap-seed1", "pnp-seed0", "pnp-seed1"]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set(folders) and len(here.calls) == 4
    made = {name: load(tmp_path / name / "config.yaml") for name in folders}
    assert [made[name].seed for name in folders] == [0, 1, 0, 1]
    for group in ("sampler", "optimizer", "model", "data.load", "trainer", "evaluation"):
        first, *others = (OmegaConf.select(config, group) for config in made.values())
        assert all(other == first for other in others)
    for loss in ("roadmap", "pnp"):
        values = [100 * Report.from_json(Run(tmp_path / f"{loss}-seed{s}").after).values["mAP@R"] for s in (0, 1)]
        row = next(line for line in table.splitlines() if line.startswith(f"| {loss} "))
        assert f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" in row
    assert (tmp_path / "compare.md").read_text() == table + "\n"
    assert main(["compare", *settings, "-o", str(tmp_path)]) == 0
    page = (tmp_path / "compare.html").read_text()
    assert "All runs" in page and all(f"<th scope=row>{loss}</th><td>2</td>" in page for loss in ("roadmap", "pnp"))
    content = json.loads((tmp_path / "compare.json").read_text())
    assert content["seeds"] == [0, 1] and len(content["values"]["pnp"]["mAP@R"]) == 2
    assert len(content["train_seconds"]["pnp"]) == 2 and "seconds" not in table
    before = [100 * Report.from_json(Run(tmp_path / f"pnp-seed{s}").before).values["mAP@R"] for s in (0, 1)]
    assert content["untrained"] == {"untrained": content["untrained"]["untrained"]}
    assert content["untrained"]["untrained"]["mAP@R"] == pytest.approx(before)
    row = next(line for line in table.splitlines() if line.startswith("| untrained "))
    assert f"{statistics.mean(before):.1f} ± {statistics.stdev(before):.1f}" in row
    assert "<th scope=row>untrained</th><td>2</td>" in page


def test_the_same_command_again_trains_nothing_and_one_more_loss_trains_that_one(photos, tmp_path, copied):
    first = compare(["loss=pnp", "seeds=0", *small(photos)], tmp_path)
    assert compare(["loss=pnp", "seeds=0", *small(photos)], tmp_path) == first and len(copied.calls) == 1
    both = compare(["loss=pnp,smooth_ap", "seeds=0", *small(photos)], tmp_path)
    assert len(copied.calls) == 2 and "loss=smooth_ap" in copied.calls[1] and "| smooth_ap" in both


def test_a_run_that_was_cut_off_is_resumed_and_ends_like_a_whole_one(photos, tmp_path, here):
    settings = ["loss=pnp", "seeds=0", *small(photos, "checkpoint_minutes=0")]
    with pytest.MonkeyPatch.context() as patch:
        die_after_writes(patch, 2)
        with pytest.raises(ConfigError, match="pnp seed 0: .*exit -9"):
            compare(settings, tmp_path / "cut")
    resumed = compare(settings, tmp_path / "cut")
    assert here.calls[1] == [f"resume={tmp_path / 'cut' / 'pnp-seed0'}", "threads=1"]
    whole = compare(settings, tmp_path / "whole")
    assert [*tmp_path.glob("*/pnp-seed0/after.json")] and resumed == whole


def test_a_failing_run_is_named_and_the_others_are_in_the_table(photos, tmp_path, here):
    with pytest.raises(ConfigError) as error:
        compare(["loss=pnp:tau=-1,roadmap", "seeds=0", *small(photos)], tmp_path)
    text = str(error.value)
    assert "these runs failed:\npnp:tau=-1 seed 0: rankgrad: loss: tau is a temperature" in text and "log.txt" in text
    assert "| roadmap" in text and "| pnp" not in text
    assert "| roadmap" in (tmp_path / "compare.md").read_text()


def test_an_error_of_all_runs_is_told_once_and_without_an_empty_table(tmp_path, here):
    photos = make_photos(tmp_path / "photos", classes=3)
    with pytest.raises(ConfigError) as error:
        compare(["loss=pnp,supap", "seeds=0,1", *small(photos)], tmp_path / "out")
    text = str(error.value)
    assert "pnp seed 0, pnp seed 1, supap seed 0, supap seed 1: rankgrad: there are 3 class(es) in all" in text
    assert text.count("there are 3 class(es)") == 1 and "| loss" not in text


def test_a_variant_carries_its_own_settings_and_has_its_own_folder(photos, tmp_path, copied):
    variants = ["pnp:alpha=1", "pnp:alpha=2+variant=Ds", "supap:offset=-0.1", "supap:offset=0.1", "recall_at_k:k=[1,2]"]
    table = compare([f"loss={','.join(variants)}", "seeds=0", *small(photos, "trainer.max_epochs=1")], tmp_path)
    assert len(copied.calls) == 5 and all(f"| {variant} " in table for variant in variants)
    found = [load(path).loss for path in tmp_path.glob("*/config.yaml")]
    assert sorted((loss.alpha, loss.variant) for loss in found if "alpha" in loss) == [(1, "Dq"), (2, "Ds")]
    assert sorted(loss.offset for loss in found if "offset" in loss) == [-0.1, 0.1]
    assert [loss.k for loss in found if "k" in loss] == [[1, 2]]


def test_a_variant_can_set_what_is_not_the_losss_by_its_whole_name(photos, tmp_path, copied):
    variants = ["pnp", "pnp:alpha=2+optimizer.lr=0.5", "info_nce:pull=0.9"]
    compare(
        [f"loss={','.join(variants)}", "seeds=0", *small(photos, "optimizer.lr=0.25", "trainer.max_epochs=1")], tmp_path
    )
    made = [load(Run(tmp_path / f"{name}-seed0").config) for name in ("pnp", "pnp-alpha=2+optimizer.lr=0.5")]
    assert [config.optimizer.lr for config in made] == [0.25, 0.5] and made[1].loss.alpha == 2
    assert any(load(path).loss.get("pull") == 0.9 for path in tmp_path.glob("*/config.yaml"))


def test_a_variant_can_take_another_memory_or_model_by_the_name_of_its_group():
    found = own_settings("rambo_ap:memory=sum+memory.weight=0.3+model.head=layer_norm+margin=0.1", [], "train")
    assert found == [
        *("loss=rambo_ap", "memory=sum", "memory.weight=0.3", "model.head=layer_norm", "loss.margin=0.1"),
    ]
    assert compose(found).memory.weight == 0.3


def test_a_variant_of_many_settings_has_a_folder_of_a_name_that_a_disk_takes(photos, tmp_path, copied):
    many = "+".join(["optimizer.lr=0.25"] * 20)
    variants = [f"pnp:{many}+alpha=1", f"pnp:{many}+alpha=2"]
    table = compare([f"loss={','.join(variants)}", "seeds=0", *small(photos)], tmp_path)
    assert len(list(tmp_path.glob("pnp*-seed0"))) == 2 and all(f"| {variant} " in table for variant in variants)


def made(out: Path, values: dict[str, list[float]]) -> str:
    """The table of finished runs, seeds counted from 0, that nobody trained; values of mAP@R as shares."""
    for loss, of_loss in values.items():
        for seed, value in enumerate(of_loss):
            run = Run(out / f"{loss}-seed{seed}")
            run.folder.mkdir(parents=True)
            run.after.write_text(json.dumps({"values": {"mAP@R": value}}))
            run.facts.write_text(json.dumps({"steps": 1, "train_seconds": 1.0}))
    return compare([f"loss={','.join(values)}", f"seeds=0..{max(map(len, values.values())) - 1}"], out)


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 6])
def test_each_loss_is_compared_with_the_first_one_over_the_seeds_both_have_with_p_from_six_seeds_on(
    tmp_path, here, seeds
):
    values = {
        "roadmap": [0.30, 0.34, 0.31, 0.29, 0.33, 0.32][:seeds],
        "pnp": [0.36, 0.35, 0.35, 0.33, 0.36, 0.34][:seeds],
    }
    table = made(tmp_path, values)
    row = next(line for line in table.splitlines() if line.startswith("| pnp ") and line.endswith(f"{seeds} |"))
    wanted = stats.ttest_rel(values["pnp"], values["roadmap"])
    low, high = (100 * bound for bound in wanted.confidence_interval(0.95))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    mean = f"{100 * statistics.mean(values['pnp']) - 100 * statistics.mean(values['roadmap']):+.2f}"
    if seeds < 4:
        assert cells[1:] == [mean, str(seeds)] and "interval" not in table and "detectable" not in table
        assert f"{'Two' if seeds == 2 else 'Three'} seeds are too few to say which loss is ahead" in table
        return
    deviation = statistics.stdev(100 * (a - b) for a, b in zip(values["pnp"], values["roadmap"], strict=True))
    size = (stats.t.ppf(0.975, seeds - 1) + stats.t.ppf(0.8, seeds - 1)) * deviation / math.sqrt(seeds)
    assert cells[1:4] == [mean, f"{low:+.2f} to {high:+.2f}", f"{size:.2f}"]
    content = json.loads((tmp_path / "compare.json").read_text())["differences"]["pnp"]
    assert content["detectable"] == pytest.approx(size) and content["n"] == seeds
    if seeds < 6:
        assert cells[4:] == [str(seeds)] and "p-value" in table and " p |" not in table
    else:
        assert float(cells[4]) == pytest.approx(wanted.pvalue, rel=0.06) and "p-value" not in table


def test_equal_runs_show_no_size_of_a_difference_that_could_be_told_apart(tmp_path, here):
    table = made(tmp_path, {"roadmap": [0.3, 0.31, 0.32, 0.33], "pnp": [0.3, 0.31, 0.32, 0.33]})
    row = next(line for line in table.splitlines() if line.startswith("| pnp ") and line.endswith("4 |"))
    assert [cell.strip() for cell in row.strip("|").split("|")][3] == "-"


def test_a_metric_that_only_some_runs_have_is_a_dash_for_the_others(tmp_path, here):
    made(tmp_path, {"roadmap": [0.3], "pnp": [0.4]})
    Run(tmp_path / "pnp-seed0").after.write_text(json.dumps({"values": {"mAP@R": 0.4, "NMI": 0.5}}))
    table = compare(["loss=roadmap,pnp", "seeds=0"], tmp_path)
    assert "| roadmap   |  30.0 |    - |" in table and "| pnp       |  40.0 | 50.0 |" in table
    assert "| untrained |     - |    - |" in table


def test_of_one_seed_there_is_no_test_and_the_table_says_what_is_not_known(tmp_path, here):
    assert "Differences" not in (table := made(tmp_path, {"roadmap": [0.3], "pnp": [0.4]})) and "seeds=0..5" in table
    assert "seeds=0..5" not in made(tmp_path / "alone", {"roadmap": [0.3]})


COLLAPSED = {
    "verdict": "ill",
    "findings": [
        {"name": "collapsed", "level": "warning", "text": "all embeddings are alike", "advice": "Lower optimizer.lr."},
        {"name": "clipped", "level": "note", "text": "many gradients were clipped", "advice": "Clip later."},
    ],
}


def test_what_is_wrong_with_a_run_stands_beside_its_numbers_on_the_terminal_in_both_files_and_on_the_page(
    photos, tmp_path, copied, capfd
):
    settings = ["loss=pnp,pml/triplet", "seeds=0,1", *small(photos, "trainer.max_epochs=1")]
    compare(settings, tmp_path)
    for seed in (0, 1):
        for name, r1 in (("pnp", 0.95), ("pml-triplet", 0.25)):
            run = Run(tmp_path / f"{name}-seed{seed}")
            for path, value in ((run.before, 0.9), (run.after, r1)):
                content = json.loads(path.read_text())
                for metric, of_metric in (("R@1", value), ("mAP@R", 0.1)):
                    content["values"][metric] = of_metric
                    content["per_query"][metric] = [of_metric] * len(content["per_query"][metric])
                path.write_text(json.dumps(content))
        run.health.write_text(json.dumps(COLLAPSED))
    assert main(["compare", *settings, "-o", str(tmp_path)]) == 0
    table, page = capfd.readouterr().out, (tmp_path / "compare.html").read_text()
    for text in (table, (tmp_path / "compare.md").read_text(), page):
        assert "pml/triplet, seeds 0, 1: all embeddings are alike. Lower optimizer.lr." in text
        assert (
            "pml/triplet, seeds 0, 1: training made the network worse: R@1 25.0 (before training 90.0; p 0.0005 over"
            in text
        )
        assert "pnp, seed" not in text and "clipped" not in text
    content = json.loads((tmp_path / "compare.json").read_text())["warnings"]
    assert [(each["seed"], each["name"]) for each in content["pml/triplet"]] == [
        *((0, "below_before"), (0, "collapsed"), (1, "below_before"), (1, "collapsed"))
    ]
    assert content["pnp"] == []


@pytest.mark.parametrize(("count", "words"), [(4, True), *slow((1, False), (3, False))])
def test_a_comparison_of_few_seeds_has_no_verdict_on_its_page_and_one_of_four_says_what_it_could_tell_apart(
    photos, tmp_path, copied, count, words
):
    settings = [f"seeds=0..{count - 1}", *small(photos, "trainer.max_epochs=1")]
    compare(["loss=pnp,supap", *settings], tmp_path)
    for seed in range(count):  # level in mAP@R: two are a little better, and two a little worse
        for loss, sign in (("pnp", 0), ("supap", (-1) ** seed)):
            path = Run(tmp_path / f"{loss}-seed{seed}").after
            content = json.loads(path.read_text())
            content["values"]["mAP@R"] = 0.5 + sign * (0.01 + 0.001 * seed)
            path.write_text(json.dumps(content))
    assert main(["compare", "loss=pnp,supap", *settings, "-o", str(tmp_path)]) == 0
    page = (tmp_path / "compare.html").read_text()
    assert ("No difference from pnp was found for supap; one of " in page) == words
    assert ("points would be found with a probability of 80 %" in page) == words
    assert any(text in page for text in ("is ahead of", "is behind", "No difference from")) == words


def test_a_variant_with_another_model_has_an_untrained_row_of_its_own(photos, tmp_path, copied):
    settings = ["loss=pnp,supap,pnp:model.head=linear", "seeds=0", *small(photos, "trainer.max_epochs=1")]
    table = compare(settings, tmp_path)
    assert "| untrained, pnp, supap " in table and "| untrained, pnp:model.head=linear " in table


def test_each_result_is_told_when_it_arrives_and_the_bar_names_the_run_under_way(photos, tmp_path, copied, capsys):
    compare(["loss=pnp,supap", "seeds=0", *small(photos, "trainer.max_epochs=1")], tmp_path)
    told = capsys.readouterr().err
    for loss in ("pnp", "supap"):
        run = Run(tmp_path / f"{loss}-seed0")
        after, before = run.read_values(), run.read_untrained()
        words = [f"{name} {100 * after[name]:.1f} (untrained {100 * before[name]:.1f})" for name in ("R@1", "mAP@R")]
        assert f"{loss}-seed0: {', '.join(words)}" in told
    assert re.search(r"0/2 .*, pnp-seed0\]", told) and re.search(r"1/2 .*, supap-seed0\]", told)
    assert told.index("pnp-seed0: ") < told.index(", supap-seed0]")


def test_a_comparison_that_is_continued_with_other_jobs_does_not_show_one_number_of_threads_for_all(
    photos, tmp_path, copied, monkeypatch
):
    monkeypatch.setattr(compare_module.os, "cpu_count", lambda: 8)
    settings = [s for s in small(photos, "trainer.max_epochs=1") if not s.startswith("threads=")]
    for seeds, jobs in (("0", 8), ("0,1", 4)):
        table = compare(["loss=pnp", f"seeds={seeds}", *settings], tmp_path, jobs=jobs)
        assert "threads" not in table
    assert [load(Run(tmp_path / f"pnp-seed{seed}").config).threads for seed in (0, 1)] == [1, 2]


def test_a_path_of_the_data_is_the_same_however_it_is_written(tmp_path, monkeypatch):
    photos, other, out = tmp_path / "photos", tmp_path / "other", tmp_path / "runs"
    for folder in (photos, other):
        folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for same in ("photos", str(photos), "./other/../photos/", "~/photos"):
        with shared(out, ["recipe=small", f"data.root={same}", "model.name=resnet18"]):
            (out / "supap-seed0").mkdir(exist_ok=True)
            (out / "supap-seed0" / "config.yaml").touch()  # a run has begun
    monkeypatch.chdir(other)
    with shared(out, ["data.root=../photos", "recipe=small", "model.name=resnet18", "threads=2"]):
        pass
    with pytest.raises(ConfigError, match=r"data.root \(then .*photos, now .*other\)"):
        with shared(out, ["data.root=.", "recipe=small", "model.name=resnet18"]):
            pass


def test_a_folder_that_another_process_works_in_is_refused_and_named(photos, tmp_path, copied):
    told = f"this folder of runs is in use: {tmp_path} is locked by process {os.getpid()} on"
    with lock(tmp_path, "another comparison"), pytest.raises(LockedError, match=re.escape(told)):
        compare(["loss=pnp", "seeds=0", *small(photos)], tmp_path)
    assert copied.calls == [] and not (tmp_path / "settings.json").exists()
    compare(["loss=pnp", "seeds=0", *small(photos, "trainer.max_epochs=1")], tmp_path)


def test_what_a_killed_comparison_left_half_written_is_removed(photos, tmp_path, copied):
    half = tmp_path / f".settings.json.{os.getpid()}.tmp"
    half.write_text('["trainer.max_')
    compare(["loss=pnp", "seeds=0", *small(photos, "trainer.max_epochs=1")], tmp_path)
    assert not half.exists() and not [*tmp_path.glob(".*")]


def test_other_settings_need_another_folder(photos, tmp_path, copied):
    compare(["loss=pnp", "seeds=0", *small(photos, "trainer.max_epochs=1")], tmp_path)
    with pytest.raises(ConfigError, match="other settings: .* --out"):
        compare(["loss=pnp", "seeds=0", *small(photos)], tmp_path)
    assert len(copied.calls) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "no loss is given"),
        (["loss="], "no loss is given"),
        (["loss=pnp,smoothap"], "unknown loss 'smoothap'; did you mean 'smooth_ap'"),
        (["loss=pnp:alhpa=1"], "unknown setting 'loss.alhpa'; did you mean 'loss.alpha'"),
        (["loss=pnp", "optimizer.rate=1"], "unknown setting 'optimizer.rate'"),
        (["loss=pnp", "data=folder"], "data.root must be given"),
        (["loss=pnp", "seeds=a"], "seeds must be integers such as 0,1,2 or 0..9: "),
        (
            ["loss=pnp", "seeds=0..99999999999"],
            "at most 10000, different, >= 0 and <= 4294967295; got '0..99999999999'",
        ),
        (["loss=pnp", "seeds=0,1,0"], "different, >= 0 and <= 4294967295; got '0,1,0'"),
        (["loss=pnp", "seeds=4294967296"], "<= 4294967295; got '4294967296'"),
        (["loss=pnp,supap,pnp"], "each loss may be named once; got 'pnp,supap,pnp'"),
        (["loss=pnp", "seed=1"], "seed= is a setting of a single run"),
        (["loss=pnp", "out=x"], "out= is a setting of a single run"),
        (["loss=pnp", "resume=x"], "resume= is a setting of a single run"),
    ],
)
def test_what_does_not_fit_is_said_before_the_first_run(tmp_path, here, settings, message):
    with pytest.raises(ConfigError) as error:
        compare(settings, tmp_path / "out")
    assert message in str(error.value)
    assert here.calls == [] and not (tmp_path / "out").exists()


def test_variants_never_share_a_folder(tmp_path):
    variants = ["a/b", "a-b", "a:b", "a b", "a//b", "[a,b]", "貓", "狗"]
    found = {path for name in variants for path in folders([f"loss=pnp:init={name}", "seeds=0"], tmp_path).popitem()[1]}
    assert len(found) == len(variants)
    assert tmp_path / "pnp-init=a-b-seed0" in found  # nothing was lost, so its name is plain


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("pml/triplet", "pml-triplet"),
        ("roadmap+pml/triplet", "roadmap+pml-triplet"),
        ("pml/triplet:loss.loss.margin=0.1", "pml-triplet-loss.loss.margin=0.1"),
    ],
)
def test_the_folder_of_a_loss_of_another_library_has_a_readable_name(tmp_path, variant, name):
    assert folders([f"loss={variant}", "seeds=0"], tmp_path) == {variant: [tmp_path / f"{name}-seed0"]}


def test_two_names_never_lead_to_one_folder():
    names = ["".join(letters) for size in range(1, 7) for letters in itertools.product("a/:=-", repeat=size)]
    found = {folders_of([name], [0], Path("out"))[name][0] for name in names}
    assert len(found) == len(names)


def test_jobs_share_the_cores(photos, tmp_path, copied, monkeypatch):
    monkeypatch.setattr(compare_module.os, "cpu_count", lambda: 8)
    settings = [s for s in small(photos, "trainer.max_epochs=1") if not s.startswith("threads=")]
    compare(["loss=pnp", "seeds=0,1", *settings], tmp_path, jobs=4)
    assert all("threads=2" in task for task in copied.calls) and len(copied.calls) == 2
    with pytest.raises(ConfigError, match="--jobs must be >= 1; got 0"):
        compare(["loss=pnp", *settings], tmp_path, jobs=0)


@pytest.mark.parametrize("how", slow_unless({"by fork"}, ["by fork", "anew"]))
def test_the_command_prints_the_table_and_runs_in_processes_of_their_own(photos, tmp_path, capsys, monkeypatch, how):
    if how == "by fork":  # Python takes seconds to start
        monkeypatch.setattr(Children, "start", start_by_fork)
    out = tmp_path / "my runs (1)"
    settings = small(photos, "trainer.max_epochs=1")
    assert main(["compare", "loss=pnp", "seeds=0", *settings, "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "| pnp " in shown and "mAP@R" in shown and Run(out / "pnp-seed0").finished
    assert "report: " in (out / "pnp-seed0" / "log.txt").read_text()
    assert main(["compare", "-o", str(out)]) == 2
    assert "loss=roadmap,pnp,smooth_ap" in capsys.readouterr().err
