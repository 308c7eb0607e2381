"""The learned sorter: what it is given, what it learns, that it ranks, and that it is kept."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
from marks import slow_unless
from small_runs import make_photos, small, train
from torch import Tensor

from rankgrad import blackbox_rank, metrics
from rankgrad.evaluation import Report
from rankgrad.losses import RankLoss, SpearmanLoss
from rankgrad.ranks import exact_ranks
from rankgrad_papers import sodeep
from rankgrad_papers.analysis import landscapes
from rankgrad_papers.sodeep import costs
from rankgrad_papers.sodeep.networks import ARCHITECTURES, Learned, Sorter
from rankgrad_papers.sodeep.store import load
from rankgrad_papers.sodeep.training import KINDS, Recipe, train_sorter
from rankgrad_papers.timing import memory
from rankgrad_workbench import cli
from rankgrad_workbench.datasets.cache import CacheWarning
from rankgrad_workbench.settings import compose, make

# A second of training: off by about half a rank.
TINY = Recipe(items=6, steps=150, batch_size=64, lr=1e-2)


@pytest.fixture(scope="module")
def tiny() -> Sorter:
    return train_sorter(TINY, progress=False)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rankgrad" / "sodeep"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ----------------------------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_ranks_lists_and_passes_a_gradient_back_to_them(name):
    sorter, scores = Sorter(5, name), torch.randn(3, 5, generator=generator(), requires_grad=True)
    ranks = sorter(scores)
    (ranks * torch.arange(5)).sum().backward()
    assert ranks.shape == (3, 5) and (scores.grad != 0).any() and scores.grad.isfinite().all()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_longer_lists_are_refused_with_what_to_do_unless_weights_have_no_positions(name):
    sorter, scores = Sorter(5, name), torch.randn(2, 7, generator=generator())
    if not ARCHITECTURES[name].mixes:
        assert sorter(scores).shape == (2, 7)
        return
    with pytest.raises(ValueError, match="at most 5 items.*7: .*gruc, grus"):
        sorter(scores)


def test_default_network_has_the_number_of_weights_that_is_documented():
    assert 64 * 20**2 < sum(p.numel() for p in Sorter(20).parameters()) < 64 * 20**2 + 40_000


def test_ranks_do_not_change_with_shift_and_scale_of_a_list(tiny):
    scores = torch.randn(4, 6, generator=generator(), dtype=torch.float64)
    torch.testing.assert_close(tiny(3 * scores - 7), tiny(scores), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tiny(scores + torch.arange(4.0).unsqueeze(1)), tiny(scores), rtol=1e-5, atol=1e-5)


def test_gradient_by_scores_is_that_of_the_ranks(tiny):
    sorter = copy.deepcopy(tiny).double()
    scores = torch.randn(3, 6, generator=generator(), dtype=torch.float64, requires_grad=True)
    valid = torch.tensor([[True] * 6, [True, False, True, True, False, True], [False] * 5 + [True]])
    assert torch.autograd.gradcheck(sorter, scores)
    assert torch.autograd.gradcheck(lambda s: sorter(s, valid), scores)
    assert torch.autograd.gradcheck(lambda s: sorter(s[:, :4]), scores)


def test_absent_items_are_not_seen_and_get_no_gradient(tiny):
    scores, valid = torch.randn(3, 6, generator=generator()), torch.rand(3, 6, generator=generator(1)) > 0.4
    other = torch.where(valid, scores, 50 * torch.randn(3, 6, generator=generator(2))).requires_grad_()
    ranks = tiny(other, valid)
    torch.testing.assert_close(ranks, tiny(scores, valid))
    assert (ranks[~valid] == 0).all()
    ranks.sum().backward()
    assert (other.grad[~valid] == 0).all()


def test_shorter_lists_are_those_with_absent_items_at_the_end(tiny):
    scores = torch.randn(3, 6, generator=generator())
    valid = torch.arange(6).expand(3, 6) < 4
    torch.testing.assert_close(tiny(scores[:, :4]), tiny(scores, valid)[:, :4])


@pytest.mark.parametrize(
    ("scores", "valid"),
    [
        (torch.full((2, 6), 0.3), None),
        (torch.full((2, 6), 0.3), torch.zeros(2, 6, dtype=torch.bool)),
        (torch.rand(2, 6), torch.eye(6)[:2] > 0),
        (torch.rand(2, 1), None),
        (torch.rand(2, 0), None),
        (torch.rand(0, 6), None),
    ],
    ids=["level", "nothing valid", "one valid", "one item", "no item", "no list"],
)
def test_degenerate_lists_give_finite_ranks_and_gradients(tiny, scores, valid):
    scores = scores.clone().requires_grad_()
    ranks = tiny(scores, valid)
    ranks.sum().backward()
    assert ranks.shape == scores.shape and ranks.isfinite().all() and scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_half_precision_is_ranked_in_float32_and_float64_comes_back_as_such(tiny, dtype):
    scores = torch.randn(3, 6, generator=generator()).to(dtype)
    ranks = tiny(scores)
    assert ranks.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(ranks.float(), tiny(scores.float()))


def test_evaluation_mode_leaves_the_recurrent_part_in_training_mode_where_cudnn_has_a_gradient(tiny):
    assert not tiny.training and tiny.recurrent.training
    assert Sorter(3, "mlp").eval().head.training is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sorter(1), "integer >= 2; got 1"),
        (lambda: Sorter(2.5), "integer >= 2; got 2.5"),
        (lambda: Sorter(5, "lstn"), "unknown architecture 'lstn'. Known: lstm_small, lstm, "),
        (lambda: Recipe(steps=0), "steps and batch_size must be >= 1 and lr > 0; got Recipe"),
        (lambda: Recipe(architecture="sort"), "unknown architecture 'sort'"),
        (lambda: Sorter(5)(torch.zeros(5)), r"float tensor \[list, item\]; got torch.float32 \(5,\)"),
        (lambda: Sorter(5)(torch.zeros(1, 5, dtype=torch.long)), "got torch.int64"),
    ],
)
def test_wrong_arguments_say_what_is_needed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------------------------------------- vectors, training


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_vector_has_distinct_finite_scores(name):
    scores = KINDS[name][1](50, 7, generator())
    assert scores.shape == (50, 7) and scores.isfinite().all()
    assert (scores.sort(1).values.diff() > 0).all()


def test_kinds_are_drawn_in_their_shares_and_the_same_for_the_same_seed():
    rows = sodeep.draw(1200, 5, generator())
    assert rows.shape == (1200, 5) and torch.equal(rows, sodeep.draw(1200, 5, generator()))
    rising = (rows == torch.linspace(-1, 1, 5)).all(1).sum().item()
    assert 70 < rising < 130  # one in twelve


def test_joined_kinds_change_over_at_a_random_place_and_have_something_of_both():
    rows = sodeep.training._Joined(lambda r, n, g: torch.zeros(r, n), lambda r, n, g: torch.ones(r, n))(
        200, 6, generator()
    )
    assert (rows.diff() >= 0).all() and set(rows.sum(1).tolist()) == {1, 2, 3, 4, 5}


def test_a_quarter_of_the_lists_drawn_lack_items_and_two_are_always_there():
    valid = sodeep.draw_valid(4000, 9, generator())
    count = valid.sum(1)
    assert count.min() == 2 and 0.70 < (count == 9).float().mean() < 0.80
    assert (count == 8).any() and (valid[:, 0].float().mean() > 0.95)
    assert (sodeep.draw_valid(100, 2, generator()).sum(1) == 2).all()


def test_training_brings_the_ranks_near_the_exact_ones(tiny):
    untrained = sum(e.mean for e in sodeep.rank_errors(Sorter(6), rows=64))
    errors = sodeep.rank_errors(tiny, rows=64)
    assert sum(e.mean for e in errors) < untrained / 3
    assert tiny.facts["error"] < 0.8 and tiny.facts["steps"] == 150 and tiny.facts["seconds"] > 0
    assert sum(e.correlation for e in errors) / len(errors) > 0.85


def test_rank_error_of_exact_ranks_is_nothing_and_of_reversed_ones_known():
    class Exact(Sorter):
        def forward(self, scores: Tensor, valid: Tensor | None = None) -> Tensor:
            return blackbox_rank(scores, 1.0)

    class Reversed(Sorter):
        def forward(self, scores: Tensor, valid: Tensor | None = None) -> Tensor:
            return blackbox_rank(-scores, 1.0)

    for e in sodeep.rank_errors(Exact(5), rows=8):
        assert (e.mean, e.most, e.correlation, e.moved) == (0, 0, pytest.approx(1), 0)
    for e in sodeep.rank_errors(Reversed(5), rows=8):
        assert (e.mean, e.most, e.correlation) == (pytest.approx((4 + 2 + 0 + 2 + 4) / 5), 4, pytest.approx(-1))


def test_same_recipe_gives_the_same_sorter_and_leaves_the_global_generator_alone():
    recipe = Recipe(items=3, architecture="grus", steps=3)
    torch.manual_seed(1)
    first = train_sorter(recipe, progress=False)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
    second = train_sorter(recipe, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    other = train_sorter(Recipe(items=3, architecture="grus", steps=3, seed=1), progress=False)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_a_sorter_is_frozen_once_trained_and_trains_also_without_gradient_mode():
    with torch.no_grad():
        sorter = train_sorter(Recipe(items=3, architecture="grus", steps=2), progress=False)
    assert not any(p.requires_grad for p in sorter.parameters())


def test_the_same_list_in_another_order_has_slightly_other_ranks(tiny):
    # a recurrent network is not equivariant: this is measured (rank_errors' `moved`), not promised away
    scores = torch.randn(64, 6, generator=generator())
    moved = (tiny(scores.flip(1)).flip(1) - tiny(scores)).abs()
    assert 0 < moved.mean() < 1.5


# ----------------------------------------------------------------------------------------------------- ranks for losses


def test_learned_ranks_of_an_exact_sorter_are_the_exact_ones(problem):
    learned = Learned(lambda scores, valid: blackbox_rank(scores.masked_fill(~valid, -9.0), 1.0))
    for lists in (problem(), problem(1, ties=True), problem(2, graded=True)):
        found, exact = learned(*lists), exact_ranks(*lists, ties="index")
        for name in ("query", "item", "gain", "above_pos", "above_neg", "above_gain"):
            torch.testing.assert_close(getattr(found, name), getattr(exact, name))
        torch.testing.assert_close(found.counted, exact.counted)


def test_ranks_that_contradict_the_count_leave_nothing_above():
    scores, relevant = torch.tensor([[0.9, 0.5, 0.1]], requires_grad=True), torch.tensor([[True, True, False]])
    ranks = Learned(lambda s, v: 1 + 0 * s)(scores, relevant)  # all of them first
    assert ranks.above_pos.tolist() == [0, 1] and ranks.above_neg.tolist() == [0, 0]
    assert metrics.average_precision(ranks).tolist() == [1]


def test_ap_and_spearman_on_learned_ranks_are_near_those_of_exact_ranks_and_can_be_descended(tiny):
    scores = torch.randn(40, 6, generator=generator())
    relevant = torch.rand(40, 6, generator=generator(1)) < 0.4
    ap, exact_ap = (RankLoss(ranks, metric=metrics.average_precision) for ranks in (Learned(tiny), exact_ranks))
    for loss, exact in ((ap, exact_ap), (SpearmanLoss(ranks=tiny), SpearmanLoss())):
        leaf = scores.clone().requires_grad_()
        value = loss.from_scores(leaf, relevant)
        assert value.item() == pytest.approx(exact.from_scores(scores, relevant).item(), abs=0.12)
        optimizer = torch.optim.Adam([leaf], lr=0.05)
        for _ in range(40):
            optimizer.zero_grad()
            loss.from_scores(leaf, relevant).backward()
            optimizer.step()
        assert exact.from_scores(leaf.detach(), relevant) < 0.5 * exact.from_scores(scores, relevant) + 0.15


def test_losses_with_a_sorter_take_embeddings_pickle_and_have_no_weights_to_train(tiny):
    embeddings = torch.randn(6, 4, generator=generator()).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    for loss in (RankLoss(Learned(tiny), metric=metrics.average_precision), SpearmanLoss(ranks=tiny)):
        value = loss(embeddings, labels)
        assert not [p for p in loss.parameters() if p.requires_grad]
        for again in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
            assert torch.equal(again(embeddings, labels), value)
            again.load_state_dict(loss.state_dict())
        assert "Sorter(items=6, architecture='lstm_small')" in repr(loss)


@pytest.mark.parametrize("name", slow_unless({"sodeep_ap"}, ["sodeep_ap", "sodeep_spearman"]))
def test_the_settings_of_a_loss_make_one_that_trains_a_run(name, home, tmp_path):
    settings = small(make_photos(tmp_path / "photos"), f"loss={name}", "loss.items=16", "loss.steps=60", "loggers=[]")
    run = train(*settings, "trainer.max_epochs=1", f"out={tmp_path / 'run'}")
    assert run.finished and run.read_values() != Report.from_json(run.before).values


def test_a_sorter_gives_the_panel_of_a_landscape(tiny):
    found = landscapes.compute("6", sorters={"SoDeep": tiny}, items=6, ticks=9).surfaces
    assert (found["SoDeep"] - found["exact"]).abs().mean() < 0.25 * (found["exact"].max() - found["exact"].min())


# ------------------------------------------------------------------------------------------------------------- kept

QUICK = Recipe(items=3, architecture="grus", steps=2, batch_size=4)


def test_first_use_trains_and_says_so_and_later_uses_read_the_file(home, capsys, monkeypatch):
    first = load(QUICK)
    assert "no sorter of 3 items is stored yet" in capsys.readouterr().err
    (path,) = home.glob("*.sorter")
    assert path == sodeep.sorter_file(QUICK)
    monkeypatch.setattr(sodeep, "train_sorter", None)  # whoever trains now fails
    second = load(QUICK)
    assert capsys.readouterr().err == "" and second.facts == first.facts and not second.training
    scores = torch.randn(2, 3)
    assert torch.equal(second(scores), first(scores)) and not any(p.requires_grad for p in second.parameters())


def test_recipes_do_not_share_files(tmp_path):
    recipes = [QUICK, *(Recipe(3, "grus", *rest) for rest in ((3, 4), (2, 5), (2, 4, 0.1), (2, 4, 3e-3, 1)))]
    recipes += [Recipe(4, "grus", 2, 4), Recipe(3, "gruc", 2, 4)]
    assert len({sodeep.sorter_file(r, tmp_path) for r in recipes}) == len(recipes)


def test_load_sorter_is_load_of_a_recipe(home):
    sorter = sodeep.load_sorter(3, "grus", steps=2, batch_size=4)
    assert [p.name for p in home.glob("*.sorter")] == [sodeep.sorter_file(QUICK).name]
    assert (sorter.items, sorter.architecture) == (3, "grus")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_file_is_a_warning_and_is_trained_again(home, damage):
    expected = load(QUICK, progress=False).facts["error"]
    path = sodeep.sorter_file(QUICK)
    whole = path.read_bytes()
    flipped = whole[:-90] + bytes([whole[-90] ^ 1]) + whole[-89:]
    path.write_bytes({"cut": whole[: len(whole) // 2], "flipped": flipped, "empty": b""}[damage])
    with pytest.warns(CacheWarning, match="is damaged and is trained again"):
        again = load(QUICK, progress=False)
    assert again.facts["error"] == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(QUICK, progress=False)  # mended


def test_training_that_is_cut_off_leaves_no_file(home, monkeypatch):
    def interrupted(*args: object, **at: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankgrad_workbench.files.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(QUICK, progress=False)
    assert [p.suffix for p in home.iterdir()] == [".lock"]


# ---------------------------------------------------------------------------------------------------------- command

WORDS = ["--items", "3", "--architecture", "grus", "--steps", "2", "--batch-size", "4"]


def test_command_trains_judges_and_lists(home, capsys):
    assert cli.main(["sodeep"]) == 0
    assert "no sorters in" in capsys.readouterr().out
    assert cli.main(["sodeep", "check", *WORDS]) == 2
    assert "train it first" in capsys.readouterr().err
    assert cli.main(["sodeep", "train", *WORDS]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*KINDS, "cosines (not trained on)", "mean error", "shuffled: moves"))
    path = sodeep.sorter_file(QUICK)
    assert f"stored in {path}" in shown
    assert cli.main(["sodeep", "check", *WORDS]) == 0
    assert capsys.readouterr().out == shown
    assert cli.main(["sodeep"]) == 0
    assert str(path) in capsys.readouterr().out


def test_command_and_settings_have_the_defaults_of_a_recipe(home, capsys, monkeypatch):
    wanted = []
    for place in (sodeep, sodeep.store):
        monkeypatch.setattr(place, "load", lambda recipe: wanted.append(recipe) or Sorter(2, "grus"))
    assert cli.main(["sodeep", "train", "--lengths", "2"]) == 0
    sodeep.load_sorter()
    assert wanted == [Recipe(), Recipe()]
    for name in ("sodeep_ap", "sodeep_spearman"):
        wanted.clear()
        make(compose([f"loss={name}"]).loss, slot="loss")
        assert wanted == [Recipe(items=128)]


def test_command_trains_again_when_told_to_and_judges_other_lengths(home, capsys):
    load(QUICK, progress=False)
    path = sodeep.sorter_file(QUICK)
    before = path.stat().st_mtime_ns
    assert cli.main(["sodeep", "train", *WORDS]) == 0
    assert path.stat().st_mtime_ns == before
    assert cli.main(["sodeep", "train", *WORDS, "--again", "--lengths", "5"]) == 0
    assert path.stat().st_mtime_ns > before
    out = capsys.readouterr().out
    assert "uniform                       5 " in out
    assert cli.main(["sodeep", "check", *WORDS, "--lengths", "x"]) == 2
    assert "--lengths needs integers such as 128,64; got 'x'" in capsys.readouterr().err
    assert cli.main(["sodeep", "check", *WORDS, "--lengths", "1"]) == 2
    assert "must be >= 2" in capsys.readouterr().err


def test_command_says_what_steps_cost(capsys, monkeypatch):
    monkeypatch.setattr(
        "rankgrad_papers.timing.memory.peak_mib", lambda cases, case, items, module: 3.0
    )  # a process each
    assert cli.main(["sodeep", "cost", "--lengths", "4", "--architecture", "grus"]) == 0
    rows = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0][1:] == ["items", "ms", "x blackbox", "MiB", "weights"]
    assert [row[0] for row in rows[1:]] == [
        *("Spearman, blackbox", "Spearman, sigmoid ranks", "Spearman, grus"),
        *("AP, blackbox", "AP, sigmoid ranks (Smooth-AP)", "AP, grus"),
    ]
    assert all(row[1] == "4" and row[4] == "3" for row in rows[1:])
    assert [row[3] for row in rows[1:] if row[0].endswith("blackbox")] == ["1.0", "1.0"]
    assert [row[5] for row in rows[1:]] == ["0", "0", "168", "0", "0", "168"]


@pytest.mark.slow
def test_memory_of_a_step_is_that_of_a_process_of_its_own():
    # sigmoid ranks: all pairs of 128 lists
    small, large = (memory.peak_mib(costs.CASES, "sorters grus 1", items, module=costs.MODULE) for items in (50, 500))
    assert large > 128 * 500**2 * 4 / memory.MIB > small
