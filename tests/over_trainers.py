"""What the processes do in the tests of other people's trainers: losses, metrics, whole trainings, on their share."""

from __future__ import annotations

import copy
import os
import socket
import tempfile
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from datasets import Dataset
from text_models import bert_folder, bert_model, sentences
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankgrad import losses
from rankgrad.batches.distributed import GlobalBatch, leave
from rankgrad.evaluation import METRICS

TEXTS, LABELS = sentences(each=4, classes=6)
SCORES = torch.rand(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
# name -> columns and labels of the whole batch; the classes lie on one process or on several
LAYOUTS: dict[str, tuple[list[list[str]], Tensor | None]] = {
    "classes": ([TEXTS], torch.tensor(LABELS)),
    "negatives": ([TEXTS[i::3] for i in range(3)], None),
    "scores": ([TEXTS[i::3] for i in range(3)], SCORES),
}
KINDS = ("roadmap", "rambo_ap", "ndcg")


def cases() -> list[tuple[str, str, str]]:
    """(layout, loss, way): a way is plain, cached or GlobalBatch."""
    return [
        (layout, kind, way)
        for layout in LAYOUTS
        for kind in KINDS
        for way in ("plain", "cached", "global")
        if (layout == "scores") == (kind == "ndcg") and (way != "global" or layout == "classes")
    ]


def gradients(model: nn.Module, layout: str, kind: str, way: str, rank: int = 0, processes: int = 1) -> list[Tensor]:
    """Value and gradients of one step on this process's share."""
    from rankgrad.adapters.sentence_transformers import CachedSentenceTransformersLoss, SentenceTransformersLoss

    columns, labels = LAYOUTS[layout]
    model = copy.deepcopy(model)  # a second DDP around the same weights would wait for the first
    size = -(-len(columns[0]) // processes)
    mine = slice(rank * size, (rank + 1) * size)
    loss: Any = losses.LOSSES[kind]()
    if way == "global":
        learner: Any = SentenceTransformersLoss(model, GlobalBatch(loss))
    elif way == "cached":
        learner = CachedSentenceTransformersLoss(model, loss, 3, gather_across_devices=processes > 1)
    else:
        learner = SentenceTransformersLoss(model, loss, gather_across_devices=processes > 1)
    # DDP looks for what is used in a dict, as the trainer has it, and not in the tokenizer's own container
    features = [dict(model.preprocess(column[mine])) for column in columns]  # type: ignore[operator]
    if processes > 1:
        # as the trainer does; the last layer of this BERT, a pooler, is not used. Its buffers, the positions, are equal
        # on all processes: sent before each forward pass, as torch 2.6 does, they count as changed by the second one
        names = [name for name, _ in model.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)  # type: ignore[no-untyped-call]
        learner.model = DistributedDataParallel(model, find_unused_parameters=True)
    value = learner(features, None if labels is None else labels[mine])
    if isinstance(value, dict):
        value = torch.stack(list(value.values())).sum()
    value.backward()
    return [value.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


def reported(rank: int = 0, processes: int = 1) -> dict[str, float]:
    """The torchmetrics report of rows that are spread unevenly."""
    from rankgrad.adapters.torchmetrics import RetrievalReport

    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(50, 6, generator=g), torch.randint(0, 9, (50,), generator=g)
    of = torch.arange(50) % (processes + 1)  # the first process has twice as many
    metric = RetrievalReport(metrics=[*METRICS, "AP@5"])
    for part in torch.arange(50)[(of == rank) | ((rank == 0) & (of == processes))].split(7):
        metric.update(rows[part], labels[part])
    return {name: float(value) for name, value in metric.compute().items()}


def reported_by_the_last(rank: int = 0, processes: int = 1) -> dict[str, dict[str, float]]:
    """Kind of labels -> the report if the other processes have no rows."""
    from rankgrad.adapters.torchmetrics import RetrievalReport

    g = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(50, 6, generator=g), torch.randint(0, 9, (50,), generator=g)
    found = {}
    for kind, truth in (
        ("classes", labels),
        ("hierarchy", torch.stack([labels // 3, labels], 1)),
        ("multi-hot", torch.eye(9).bool()[labels]),
    ):
        metric = RetrievalReport()
        if rank == processes - 1:
            metric.update(rows, truth)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The ``compute`` method")  # of torchmetrics, without rows
            found[kind] = {name: float(value) for name, value in metric.compute().items()}
    return found


def refused_reports(rank: int) -> list[str]:
    """What each process is told if their rows do not fit."""
    from rankgrad.adapters.torchmetrics import RetrievalReport

    told = []
    rows, labels = torch.rand(4, 6), torch.tensor([0, 0, 1, 1])
    for mine in ((rows[:, : 6 - rank], labels), (rows.to((torch.float32, torch.float64)[rank > 0]), labels)):
        metric = RetrievalReport()
        metric.update(*mine)
        try:
            metric.compute()
        except ValueError as error:
            told.append(str(error))
    return told


SETTINGS = {
    "num_train_epochs": 2,
    "learning_rate": 0.1,
    "optim": "sgd",
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "dataloader_pin_memory": False,
    "save_strategy": "no",
    "logging_steps": 100,
    "seed": 3,
}


def settings(processes: int) -> dict[str, Any]:
    """Arguments of both trainers."""
    return {**SETTINGS, **({"ddp_backend": "gloo"} if processes > 1 else {})}


def trained_sentences(folder: str, processes: int = 1) -> dict[str, Tensor]:
    """Weights of a SentenceTransformer after two epochs; the batch of all processes together is always the same."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    from rankgrad.adapters.sentence_transformers import CachedSentenceTransformersLoss, ClassBatchSampler

    model = bert_model(Path(folder) / "bert")
    texts, labels = sentences(each=6)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=f"{folder}/out",
            per_device_train_batch_size=32 // processes,
            batch_sampler=ClassBatchSampler,
            **settings(processes),
        ),
        train_dataset=Dataset.from_dict({"text": texts, "label": labels}),
        loss=CachedSentenceTransformersLoss(
            model, losses.SmoothAPLoss(tau=0.1), 7, gather_across_devices=processes > 1
        ),
    )
    trainer.train()
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def trained_transformers(folder: str, processes: int = 1) -> dict[str, Any]:
    """Weights of an EmbeddingModel after two epochs of the Trainer, and the numbers of its evaluation."""
    from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, TrainingArguments

    from rankgrad.adapters.transformers import ClassBatchTrainer, EmbeddingModel, RetrievalMetrics, TransformersLoss

    path = bert_folder(Path(folder) / "bert")
    words = AutoTokenizer.from_pretrained(path)
    model = EmbeddingModel(AutoModel.from_pretrained(path, add_pooling_layer=False).double())

    def tokenized(seed: int) -> Dataset:
        texts, labels = sentences(each=6, seed=seed)
        return Dataset.from_dict({**words(texts), "label": labels})

    trainer = ClassBatchTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{folder}/out", per_device_train_batch_size=32 // processes, **settings(processes)
        ),
        train_dataset=tokenized(0),
        eval_dataset=tokenized(1),
        data_collator=DataCollatorWithPadding(words),
        compute_loss_func=TransformersLoss(losses.SmoothAPLoss(tau=0.1), gather_across_devices=processes > 1),
        compute_metrics=RetrievalMetrics(),
    )
    trainer.train()
    numbers = {name: value for name, value in trainer.evaluate().items() if "R@" in name or name == "eval_AP"}
    return {"weights": {name: weight.detach().clone() for name, weight in model.state_dict().items()}, **numbers}


def _work(rank: int, processes: int, folder: str, port: int, trainings: bool) -> None:
    warnings.simplefilter("error")
    # of torch's own DDP, on torch 2.15: told to people who write its C++
    warnings.filterwarnings("default", category=FutureWarning, module="torch")
    # Accelerate calls torch's DDP by an argument that has another name since torch 2.15
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if trainings:  # as torchrun tells them
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(processes)}
        for name, train in {"sentences": trained_sentences, "transformers": trained_transformers}.items():
            found[name] = train(folder, processes)
    else:
        limit = timedelta(seconds=120)
        dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=processes, timeout=limit)
        model = bert_model(Path(folder) / "bert")
        for case in cases():
            found["/".join(case)] = gradients(model, *case, rank, processes)
        found["report"] = reported(rank, processes)
        found["report by the last"] = reported_by_the_last(rank, processes)
        found["refused reports"] = refused_reports(rank)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    leave()


def spawn(processes: int, trainings: bool = False) -> list[dict[str, Any]]:
    """What each of the processes found."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        bert_folder(Path(folder) / "bert")  # save_pretrained writes on the first process alone
        work: Callable[..., None] = _work
        # by fork they have imported everything, see over_processes.py; what a trainer has set up does not come along
        forks = not torch.cuda.is_available() and not trainings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of threads beside a fork
            mp.start_processes(  # type: ignore[no-untyped-call]
                work,
                (processes, folder, port, trainings),
                nprocs=processes,
                start_method="fork" if forks else "spawn",
            )
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(processes)]
