"""Rows with several classes, with a hierarchy, with a group: what training, evaluation and page make of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import make_texts, small_texts, train

from rankgrad.evaluation import Report, evaluate
from rankgrad.losses import HAPLoss, SmoothAPLoss
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import load_text
from rankgrad_workbench.datasets.rows import numbered_several
from rankgrad_workbench.index.gallery import index_of_run
from rankgrad_workbench.models.weights import load_weights
from rankgrad_workbench.settings import ConfigError, compose
from rankgrad_workbench.tasks.retrieval.task import build
from rankgrad_workbench.training.bi_encoder_losses import SentenceTransformersBaseline

LABELS = ("card", "loan", "rent", "tax")


def make_several(path: Path) -> Path:
    """A csv of texts about one or two of four things."""
    lines = ["text,label,split"]
    for part in ("train", "test"):
        for first in range(4):
            for each in range(6):
                classes = [LABELS[first], LABELS[(first + 1) % 4]][: 1 + each % 2]
                lines.append(f"{' '.join(classes)} {part} {each},{'|'.join(classes)},{part}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


SEVERAL = ("data.load.separator='|'", "loggers=[]")


# ------------------------------------------------------------------------------------------------------ several classes


def test_a_field_holds_several_classes(tmp_path):
    table = load_text(make_several(tmp_path / "a.csv"), separator="|")
    assert table.class_names == LABELS and table.several.sum(1).tolist() == [1, 2] * 24
    assert table.truth is table.several and table.label[:2].tolist() == [0, 0]  # the first that is named
    part = table.select("test")
    assert torch.equal(part.several, table.several[24:]) and part.fingerprint() != table.fingerprint()
    assert load_text(make_several(tmp_path / "a.csv")).class_names[1] == "card|loan"  # no separator: one class


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("text,label,split\na,x|x,train\n", r"line 2: 'x\|x' has a repeated or an empty class"),
        ("text,label,split\na,x,train\nb,x|,test\n", r"line 3: 'x\|' has a repeated or an empty class"),
        ("text,label\na,x\n", "split='NAME'"),
    ],
)
def test_what_is_wrong_with_several_classes_is_named(rows, message, tmp_path):
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_text(tmp_path / "a.csv", separator="|")


def test_the_loss_is_told_all_classes_and_the_evaluation_asks_for_a_shared_one(tmp_path, capsys):
    file = make_several(tmp_path / "a.csv")
    given = small_texts(file, "loss=smooth_ap", *SEVERAL)
    task = build(compose(given), quiet=True)
    told = []
    task.module.loss.loss.register_forward_hook(lambda module, given, out: told.append(given[1]))
    task.module.log = lambda *_, **__: None
    batch = next(iter(task.data.train_dataloader()))
    value = task.module.training_step(batch, 0)
    _, labels, ids = batch
    assert torch.equal(told[0], task.rows.train.several[ids]) and told[0].shape == (len(labels), 4)
    assert value == SmoothAPLoss()(task.model(batch[0]), told[0])

    run = train(*given, f"out={tmp_path / 'run'}")
    with np.load(run.embeddings) as saved:
        assert saved["labels"].dtype == bool and saved["labels"].shape == (24, 4)
        by_hand = evaluate(saved["embeddings"], saved["labels"], intervals=0)
    assert run.read_values() == by_hand.values
    page = run.page.read_text(encoding="utf-8")
    assert "card, loan" in page
    assert main(["report", str(run.embeddings), "-o", str(tmp_path / "page.html")]) == 0
    assert "card, loan" in index_of_run(run.folder).classes


def test_the_page_marks_what_shares_a_class_as_right(tmp_path):
    from rankgrad_workbench.tasks.retrieval.page import Space
    from rankgrad_workbench.tasks.retrieval.page.measured import confusions, ranked

    several = numbered_several([["a"], ["a", "b"], ["b"]])[2]
    np.savez(tmp_path / "x.npz", embeddings=torch.eye(3).numpy(), labels=several.numpy(), class_names=["a", "b"])
    space = Space.load(tmp_path / "x.npz")
    assert [space.class_names[at] for at in space.labels.tolist()] == ["a", "a, b", "b"]
    relevant = space.relevant(torch.arange(3), torch.tensor([[1, 2], [0, 2], [1, 0]]))
    assert relevant.tolist() == [[True, False], [True, True], [True, False]]
    assert ranked(space, torch.arange(3)).ap.isfinite().all()  # each shares a class with another
    assert not confusions(space, torch.tensor([0]), torch.ones(1), torch.tensor([1]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("loss=cross_entropy", *SEVERAL), "CrossEntropyLoss takes one class per row, but these rows have several"),
        (("loss=supap+histogram", *SEVERAL), "HistogramLoss takes one class per row"),
        (("fold=1/2", "evaluation.split=val", *SEVERAL), "fold=1/2 needs one class per text"),
        (("hierarchy=true", *SEVERAL), "rows of a have several classes"),
    ],
)
def test_what_takes_one_class_refuses_several(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(*small_texts(make_several(tmp_path / "a.csv"), *settings), f"out={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------------------------ hierarchy


def make_hierarchy(path: Path) -> Path:
    lines = make_texts(path).read_text(encoding="utf-8").splitlines()
    topics = [f"topic {number // 6 % 2}" for number in range(len(lines) - 1)]
    path.write_text("\n".join([f"{lines[0]},super_label", *map(",".join, zip(lines[1:], topics, strict=True))]) + "\n")
    return path


def test_a_hierarchy_is_told_to_the_loss(tmp_path):
    file = make_hierarchy(tmp_path / "a.csv")
    task = build(compose(small_texts(file, "loss=h_ap", "hierarchy=true")), quiet=True)
    task.module.log = lambda *_, **__: None
    texts, labels, ids = next(iter(task.data.train_dataloader()))
    value = task.module.training_step((texts, labels, ids), 0)
    levels = torch.stack([task.rows.train.super_label[ids], task.rows.train.label[ids]], dim=1)
    assert value == HAPLoss()(task.model(texts), levels) and value != HAPLoss()(task.model(texts), labels)


def test_a_run_is_graded_by_super_labels_where_that_is_asked_for(tmp_path, capsys):
    file = make_hierarchy(tmp_path / "a.csv")
    run = train(*small_texts(file, "loss=h_ap", "hierarchy=true"), f"out={tmp_path / 'run'}")
    values = Report.from_json(run.after).values
    assert {"H-AP", "H-NDCG"} <= set(values) and "H-AP" in run.page.read_text(encoding="utf-8")
    assert main(["evaluate", str(run.folder), "--levels", "-o", str(tmp_path / "again.json")]) == 0
    again = Report.from_json(tmp_path / "again.json")
    assert again.values["H-AP"] == pytest.approx(values["H-AP"]) and len(again.levels) == 1
    assert "H-NDCG" in capsys.readouterr().out
    plain = train(
        *small_texts(file, "loss=supap", "evaluation.levels=true", "trainer.max_epochs=1"), f"out={tmp_path / 'plain'}"
    )
    assert "H-AP" in Report.from_json(plain.after).values
    without = make_texts(tmp_path / "b.csv")
    with pytest.raises(ConfigError, match="evaluation.levels=true .*super-label"):
        train(*small_texts(without, "evaluation.levels=true"), f"out={tmp_path / 'none'}")
    train(*small_texts(without, "trainer.max_epochs=1"), f"out={tmp_path / 'none'}")
    assert main(["evaluate", str(tmp_path / "none"), "--levels"]) != 0
    assert "this file has no super_labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    "fine", [np.arange(24) % 8, np.array([f"class {i % 8}" for i in range(24)])], ids=["int", "str"]
)
@pytest.mark.parametrize(
    "coarse", [np.arange(24) % 2, np.array(["odd", "even"])[np.arange(24) % 2]], ids=["int", "str"]
)
def test_levels_of_an_npz_with_a_gallery_are_those_of_its_two_columns(tmp_path, fine, coarse):
    rows = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    sides = {"": slice(0, 10), "ref_": slice(10, 24)}
    columns = {f"{side}embeddings": rows[part] for side, part in sides.items()}
    columns |= {f"{side}labels": fine[part] for side, part in sides.items()}
    columns |= {f"{side}super_labels": coarse[part] for side, part in sides.items()}
    np.savez(tmp_path / "a.npz", **columns)
    out = tmp_path / "a.json"
    assert main(["evaluate", str(tmp_path / "a.npz"), "--levels", "--clusters", "none", "-o", str(out)]) == 0
    levels = np.stack([np.arange(24) % 2, np.arange(24) % 8], axis=1)
    wanted = evaluate(rows[:10], levels[:10], ref_embeddings=rows[10:], ref_labels=levels[10:])
    assert Report.from_json(out).values == pytest.approx(wanted.values)
    assert {row["class"] for row in Report.from_json(out).per_class} == set(fine[:10].tolist())


def test_what_takes_no_hierarchy_refuses_it(tmp_path):
    with pytest.raises(ConfigError, match="a have no super-labels"):
        train(*small_texts(make_texts(tmp_path / "a.csv"), "hierarchy=true"), f"out={tmp_path / 'run'}")
    file = make_hierarchy(tmp_path / "b.csv")
    with pytest.raises(ConfigError, match="CrossEntropyLoss .*hierarchy"):
        train(*small_texts(file, "hierarchy=true", "loss=cross_entropy"), f"out={tmp_path / 'run'}")


# --------------------------------------------------------------------------------------------------------------- group


def test_training_does_not_look_at_groups_and_evaluation_does(tmp_path):
    lines = make_texts(tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()
    grouped = [f"{line},{'group' if not row else row // 2}" for row, line in enumerate(lines)]
    (tmp_path / "b.csv").write_text("\n".join(grouped) + "\n", encoding="utf-8")
    one, other = (
        train(*small_texts(tmp_path / f"{name}.csv", "loggers=[]"), f"out={tmp_path / name}") for name in "ab"
    )
    weights = [load_weights(run.weights)[0].state_dict() for run in (one, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert one.read_values() != other.read_values()
    note = "drawn, or without the query"
    assert note in other.page.read_text(encoding="utf-8") and note not in one.page.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------- losses of sentence-transformers


def test_pairs_of_a_batch_never_hold_their_own_class_as_wrong():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses as theirs

    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(7, 3, generator=g), torch.tensor([1, 0, 0, 1, 1, 2, 1])
    plain = theirs.MultipleNegativesRankingLoss(torch.nn.Identity(), scale=7.0)
    # rounds: (1, 2) and (0, 3); then (4, 6) alone. Row 5 has no partner
    first = plain.compute_loss_from_embeddings([rows[[1, 0]], rows[[2, 3]]], labels)
    alone = plain.compute_loss_from_embeddings([rows[[4]], rows[[6]]], labels)
    found = SentenceTransformersBaseline("MultipleNegativesRankingLoss", scale=7.0)(rows, labels)
    torch.testing.assert_close(found, (2 * first + alone) / 3)


def test_a_batch_triplet_is_theirs_and_cosent_takes_a_hierarchy():
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses as theirs

    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(8, 3, generator=g), torch.arange(4).repeat_interleave(2)
    distance = theirs.BatchHardTripletLossDistanceFunction
    plain = theirs.BatchHardTripletLoss(torch.nn.Identity(), distance.cosine_distance, 0.3)
    found = SentenceTransformersBaseline("BatchHardTripletLoss", margin=0.3)(rows, labels)
    torch.testing.assert_close(found, plain.compute_loss_from_embeddings([rows], labels))
    loss = SentenceTransformersBaseline("CoSENTLoss")
    levels = torch.stack([labels // 2, labels], dim=1)
    assert loss(rows, levels) != loss(rows, labels)
    with pytest.raises(ValueError, match="one class per row; got a hierarchy"):
        SentenceTransformersBaseline("BatchHardTripletLoss")(rows, levels)
    with pytest.raises(TypeError, match="margn"):
        SentenceTransformersBaseline("BatchHardTripletLoss", margn=1)
    with pytest.raises(ValueError, match="no loss 'CosentLoss'"):
        SentenceTransformersBaseline("CosentLoss")
