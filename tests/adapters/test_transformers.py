"""Inside the Trainer of transformers: our loss as a share of a step, exact batches, exact numbers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from marks import slow_unless

pytest.importorskip("transformers", reason="transformers is an extra")
pytest.importorskip("datasets", reason="datasets comes with the extra")

from datasets import Dataset  # after the check that they are there
from over_trainers import SETTINGS
from text_models import bert_folder, sentences
from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, TrainingArguments

from rankgrad import losses
from rankgrad.adapters.transformers import ClassBatchTrainer, EmbeddingModel, RetrievalMetrics, TransformersLoss
from rankgrad.batches.distributed import GlobalBatch
from rankgrad.batches.memory import CrossBatchMemory
from rankgrad.evaluation import evaluate
from rankgrad.losses import baselines


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def words(folder):
    return AutoTokenizer.from_pretrained(folder)


def model_of(folder, pooling="mean"):
    return EmbeddingModel(AutoModel.from_pretrained(folder, add_pooling_layer=False).double(), pooling)


def tokenized(words, seed=0, each=6, classes=16):
    texts, labels = sentences(each=each, seed=seed, classes=classes)
    return Dataset.from_dict({**words(texts), "label": labels})


def trainer_of(model, words, folder, loss, **settings):
    settings = {
        "per_device_train_batch_size": 16,
        **SETTINGS,
        "num_train_epochs": 1,
        **settings,
    }
    more = {name: settings.pop(name) for name in ("samples_per_class", "train_dataset") if name in settings}
    trainer = ClassBatchTrainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **settings),
        train_dataset=more.pop("train_dataset", None) or tokenized(words),
        eval_dataset=tokenized(words, seed=1),
        data_collator=DataCollatorWithPadding(words),
        compute_loss_func=loss,
        compute_metrics=RetrievalMetrics(),
        **more,
    )
    trainer.seen = []
    compute = trainer.compute_loss

    def watched(model, inputs, *rest, **named):
        if model.training:
            trainer.seen.append(inputs["labels"].tolist())
        return compute(model, inputs, *rest, **named)

    trainer.compute_loss = watched
    return trainer


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_padding_does_not_change_an_embedding(pooling, folder, words):
    model = model_of(folder, pooling).eval()
    texts = ["my card please", "loan rate of the account that you want"]
    padded = words(texts, padding=True, return_tensors="pt")
    together = model(**padded).embeddings
    tokens = model.body(**words(texts[:1], return_tensors="pt")).last_hidden_state[0]
    alone = model(words(texts[:1], return_tensors="pt")["input_ids"]).embeddings[0]
    expected = {"mean": tokens.mean(0), "first": tokens[0], "last": tokens[-1]}[pooling]
    torch.testing.assert_close(together[0], expected)
    torch.testing.assert_close(alone, expected)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_the_loss_function_is_our_loss_of_the_named_output(name):
    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(12, 4, generator=g, dtype=torch.float64), torch.arange(12) // 3
    wanted = losses.LOSSES[name]()(rows, labels)
    assert TransformersLoss(losses.LOSSES[name]())({"embeddings": rows}, labels) == wanted
    # half of the labels of a step: half of the loss
    half = TransformersLoss(losses.LOSSES[name](), output="image_embeds")
    half = half({"image_embeds": rows}, labels, torch.tensor(24))
    torch.testing.assert_close(half, wanted / 2)


def test_every_batch_of_the_trainer_has_p_classes_with_k_rows(folder, words, tmp_path):
    trainer = trainer_of(model_of(folder), words, tmp_path, TransformersLoss(losses.SmoothAPLoss()), num_train_epochs=2)
    trainer.train()
    assert len(trainer.seen) == 2 * (96 // 16)
    for batch in trainer.seen:
        assert np.unique(batch, return_counts=True)[1].tolist() == [4] * 4
    assert trainer.seen[:6] != trainer.seen[6:]
    again = trainer_of(
        model_of(folder), words, tmp_path, TransformersLoss(losses.SmoothAPLoss()), samples_per_class=2, max_steps=2
    )
    again.train()
    assert [np.unique(batch, return_counts=True)[1].tolist() for batch in again.seen] == [[2] * 8] * 2


@pytest.mark.parametrize("accumulated", slow_unless({2}, [1, 2]))
def test_a_step_moves_the_weights_by_the_mean_gradient_of_its_batches(accumulated, folder, words, tmp_path):
    model = model_of(folder)
    trainer = trainer_of(
        model,
        words,
        tmp_path,
        TransformersLoss(losses.SmoothAPLoss(tau=0.1)),
        gradient_accumulation_steps=accumulated,
        max_steps=2,
    )
    batches = list(trainer.get_train_dataloader())[: 2 * accumulated]
    trainer.train()
    plain, loss = model_of(folder).train(), losses.SmoothAPLoss(tau=0.1)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        for batch in batches[step * accumulated : (step + 1) * accumulated]:
            (loss(plain(**batch).embeddings, batch["labels"]) / accumulated).backward()
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-10)
    fresh = model_of(folder).state_dict()
    assert any((weight - fresh[name]).abs().max() > 1e-4 for name, weight in model.state_dict().items())


@pytest.mark.slow  # so does that of sentence-transformers
def test_the_best_model_is_chosen_by_our_numbers(folder, words, tmp_path):
    model = model_of(folder).float()
    trainer = trainer_of(
        model,
        words,
        tmp_path,
        TransformersLoss(losses.SmoothAPLoss(tau=0.1)),
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_mAP@R",
    )
    trainer.train()
    measured = [entry["eval_mAP@R"] for entry in trainer.state.log_history if "eval_mAP@R" in entry]
    assert len(measured) == 3 and trainer.state.best_metric == max(measured)
    texts, labels = sentences(each=6, seed=1)
    with torch.no_grad():
        rows = trainer.model.eval()(**words(texts, padding=True, return_tensors="pt")).embeddings
    assert evaluate(rows, labels).values["mAP@R"] == pytest.approx(max(measured), abs=1e-6)


def test_a_training_that_goes_on_sees_the_batches_that_were_to_come(folder, words, tmp_path):
    settings = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 8}
    loss = TransformersLoss(losses.SmoothAPLoss(tau=0.1))
    whole = trainer_of(model_of(folder), words, tmp_path, loss, **settings)
    whole.train()
    rest = trainer_of(model_of(folder), words, tmp_path / "b", loss, **settings)
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert rest.seen == whole.seen[8:]
    torch.testing.assert_close(rest.model.state_dict(), whole.model.state_dict(), rtol=0, atol=1e-9)


STATES = {
    "thresholds": losses.AdaptiveROADMAPLoss,
    "margins": losses.AdaptiveTripletLoss,
    "in a sum": lambda: losses.SumLoss(
        {"rank": losses.SmoothAPLoss(tau=0.1), "level": losses.CalibrationLoss(quantiles=(0.5, 0.99))},
        {"rank": 0.5, "level": 0.5},
    ),
}


@pytest.mark.parametrize("kind", slow_unless({"thresholds"}, STATES))
def test_a_training_that_goes_on_has_the_state_of_its_loss(kind, folder, words, tmp_path):
    settings = {"num_train_epochs": 4, "save_strategy": "epoch"}
    loss, again = STATES[kind](), STATES[kind]()
    whole = trainer_of(model_of(folder).float(), words, tmp_path, TransformersLoss(loss), **settings)
    whole.train()
    rest = trainer_of(model_of(folder).float(), words, tmp_path / "b", TransformersLoss(again), **settings)
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert loss.state_dict() and rest.seen == whole.seen[12:]
    torch.testing.assert_close(again.state_dict(), loss.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(rest.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_a_checkpoint_without_the_state_of_the_loss_is_told(folder, words, tmp_path):
    settings = {"num_train_epochs": 2, "save_strategy": "epoch"}
    trainer_of(model_of(folder), words, tmp_path, TransformersLoss(losses.SmoothAPLoss()), **settings).train()
    checkpoint = tmp_path / "checkpoint-6"
    assert not (checkpoint / "rankgrad_loss.pt").exists()  # nothing to save
    loss = TransformersLoss(losses.AdaptiveROADMAPLoss())
    rest = trainer_of(model_of(folder), words, tmp_path / "b", loss, **settings)
    with pytest.warns(UserWarning, match="no rankgrad_loss.pt, so the state of AdaptiveROADMAPLoss is not restored"):
        rest.train(resume_from_checkpoint=str(checkpoint))
    other = losses.SumLoss({"level": losses.CalibrationLoss(quantiles=(0.5, 0.99))}, {"level": 1.0})
    rest = trainer_of(model_of(folder), words, tmp_path / "c", TransformersLoss(other), **settings)
    with pytest.raises(RuntimeError, match="Missing key.*losses.level.running"):
        rest.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-12"))


def test_an_iterable_data_set_is_refused(folder, words, tmp_path):
    streamed = tokenized(words).to_iterable_dataset()
    trainer = trainer_of(
        model_of(folder), words, tmp_path, TransformersLoss(losses.SmoothAPLoss()), train_dataset=streamed, max_steps=2
    )
    with pytest.raises(ValueError, match="rows can be chosen; got IterableDataset. Load it as a datasets.Dataset"):
        trainer.train()


def test_sums_baselines_and_a_global_batch_are_losses_too():
    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(12, 4, generator=g, dtype=torch.float64), torch.arange(12) // 3
    parts = {"rank": losses.SupAPLoss(), "level": losses.CalibrationLoss()}
    for loss in (
        losses.SumLoss(parts, {"rank": 0.3, "level": 0.7}),
        baselines.BinomialDevianceLoss(),
        GlobalBatch(losses.SmoothAPLoss()),
    ):
        assert TransformersLoss(loss)({"embeddings": rows}, labels) == loss(rows, labels)


def test_what_a_loss_function_can_not_be_is_said():
    for loss, told in (
        (CrossBatchMemory(losses.SmoothAPLoss(), 8), "CrossBatchMemory needs the sample id of each row"),
        (GlobalBatch(CrossBatchMemory(losses.SmoothAPLoss(), 8)), "CrossBatchMemory needs the sample id of each row"),
        (torch.nn.CrossEntropyLoss(), "a SumLoss, a loss of rankgrad.losses.baselines.*got CrossEntropyLoss"),
        (GlobalBatch(torch.nn.CrossEntropyLoss()), "got GlobalBatch of a CrossEntropyLoss"),
        ("smooth_ap", "got str"),
    ):
        with pytest.raises(TypeError, match=told):
            TransformersLoss(loss)
    for loss, settings, told in (
        (losses.SumLoss({"a": losses.SmoothAPLoss(reduction="none")}, {"a": 1.0}), {}, "reduction='mean'"),
        (baselines.CrossEntropyLoss(16, 32), {}, "CrossEntropyLoss has weights of its own"),
        (GlobalBatch(losses.SmoothAPLoss()), {"gather_across_devices": True}, "not both"),
    ):
        with pytest.raises(ValueError, match=told):
            TransformersLoss(loss, **settings)


def test_what_does_not_fit_is_refused_with_what_to_do(folder, words, tmp_path):
    loss, rows = TransformersLoss(losses.SmoothAPLoss()), torch.randn(4, 2)
    with pytest.raises(ValueError, match="no output 'embeddings'; it has last_hidden_state"):
        loss({"last_hidden_state": rows}, torch.arange(4))
    for outputs in (rows, (rows,)):  # what a plain module returns
        with pytest.raises(TypeError, match=f"must return its embeddings by name, .*; got {type(outputs).__name__}"):
            loss(outputs, torch.arange(4))
    with pytest.raises(ValueError, match="needs classes: the data set must have a column label"):
        loss({"embeddings": rows}, None)
    with pytest.raises(ValueError, match="reduction='mean'"):
        TransformersLoss(losses.SmoothAPLoss(reduction="none"))
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        EmbeddingModel(torch.nn.Linear(2, 2), "max")
    with pytest.raises(TypeError, match="preprocess_logits_for_metrics"):
        RetrievalMetrics()(type("Prediction", (), {"predictions": (rows, rows), "label_ids": None}))
    for settings, told in (
        ({"per_device_train_batch_size": 10}, "a multiple of samples_per_class=4, and at least 8; got 10"),
        (
            {"per_device_train_batch_size": 128},
            "batches of 128 rows, 4 per class, need 32 classes .* only 16 of 16 classes",
        ),
        (
            {"train_dataset": tokenized(words).remove_columns("label")},
            "named label, labels or label_ids; got Dataset with",
        ),
    ):
        with pytest.raises(ValueError, match=told):
            trainer_of(model_of(folder), words, tmp_path, loss, **settings).train()


def test_without_the_library_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "rankgrad.adapters.transformers")
    with pytest.raises(ModuleNotFoundError, match="transformers.*pip install"):
        import rankgrad.adapters.transformers  # noqa: F401
