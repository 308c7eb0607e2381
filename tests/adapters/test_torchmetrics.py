"""As a metric of torchmetrics the report has our numbers, whatever the batches."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch

pytest.importorskip("torchmetrics", reason="torchmetrics is an extra")

from torchmetrics import MetricCollection  # after the check that it is there

from rankgrad.adapters.torchmetrics import RetrievalReport
from rankgrad.evaluation import METRICS, evaluate


def rows(count: int = 40, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(count, 6, generator=g), torch.randint(0, 8, (count,), generator=g)


def filled(metric, embeddings, labels, size=7):
    for part in torch.arange(len(labels)).split(size):
        metric.update(embeddings[part], labels[part])
    return metric


@pytest.mark.parametrize("kind", ["classes", "hierarchy", "multi-hot"])
def test_batches_add_up_to_our_numbers(kind):
    embeddings, labels = rows()
    if kind != "classes":
        labels = torch.stack([labels // 3, labels], 1) if kind == "hierarchy" else torch.eye(8).bool()[labels]
    metric = filled(RetrievalReport(similarity="euclidean", metrics=[*METRICS, "R@3", "AP@5"]), embeddings, labels)
    wanted = evaluate(embeddings, labels, similarity="euclidean", metrics=[*METRICS, "R@3", "AP@5"]).values
    found = metric.compute()
    assert {name: float(value) for name, value in found.items()} == wanted
    assert all(value.dtype == torch.float64 and value.ndim == 0 for value in found.values())


def test_a_reset_forgets_and_the_report_has_intervals():
    metric = filled(RetrievalReport(prefix="val/", intervals=50), *rows())
    assert metric.report is None and "val/R@1" in metric.compute()
    assert metric.report == evaluate(*rows(), intervals=50)
    metric.reset()
    other = rows(30, seed=1)
    assert filled(metric, *other).compute()["val/AP"] == evaluate(*other).values["AP"]


def test_it_copies_pickles_and_joins_a_collection():
    metric = filled(RetrievalReport(), *rows())
    wanted = metric.compute()
    for again in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert again.compute() == wanted
    together = MetricCollection([RetrievalReport()])
    together.update(*rows())
    assert together.compute()["R@1"] == wanted["R@1"]


def test_called_it_tells_of_the_batch_and_keeps_the_rest():
    metric, (embeddings, labels) = RetrievalReport(), rows()
    for part in torch.arange(40).split(20):
        found = metric(embeddings[part], labels[part])
        assert float(found["AP"]) == evaluate(embeddings[part], labels[part]).values["AP"]
    assert float(metric.compute()["AP"]) == evaluate(embeddings, labels).values["AP"]


def of_processes(monkeypatch, *batches):
    """A metric after a gather: each process added one batch."""
    together = RetrievalReport()
    for rank, batch in enumerate(batches):
        monkeypatch.setattr("rankgrad.adapters.torchmetrics.world", lambda rank=rank: (rank, len(batches)))
        together.update(*batch)
    return together


def test_rows_of_the_same_id_count_once_whichever_process_added_them(monkeypatch):
    embeddings, labels = rows()
    wanted = evaluate(embeddings, labels, intervals=0)
    ids = torch.arange(40)
    whole = (embeddings, labels, ids)
    assert of_processes(monkeypatch, whole, whole).compute()["AP"] == wanted.values["AP"]
    # as a DistributedSampler divides 40 rows among three processes: two rows are repeated
    parts = [torch.cat([ids, ids[:2]])[rank::3] for rank in range(3)]
    metric = of_processes(monkeypatch, *((embeddings[part], labels[part], ids[part] + 7) for part in parts))
    metric.compute()
    assert metric.report == wanted
    hierarchy = torch.stack([labels // 3, labels], 1)
    metric = of_processes(monkeypatch, *[(embeddings, hierarchy, ids.int())] * 2)
    assert metric.compute()["AP"] == evaluate(embeddings, hierarchy, intervals=0).values["AP"]


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_processes_that_add_the_same_rows_without_ids_are_told_what_to_do(monkeypatch):
    embeddings, labels = rows()
    with pytest.raises(ValueError, match="process 1 added exactly the 40 rows of process 0.*Divide.*ids"):
        of_processes(monkeypatch, (embeddings, labels), (embeddings.clone(), labels)).compute()
    divided = of_processes(monkeypatch, (embeddings[::2], labels[::2]), (embeddings[1::2], labels[1::2]))
    assert divided.compute()["R@1"] == RetrievalReport()(embeddings, labels)["R@1"]
    # different rows that the network maps to one point
    point = torch.ones(40, 6)
    assert "AP" in of_processes(monkeypatch, (point, labels), (point, labels)).compute()
    # one process may add a row twice, as before
    once = RetrievalReport()
    once.update(embeddings, labels)
    once.update(embeddings, labels)
    assert once.compute()["R@1"] == 1


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")
def test_ids_that_can_not_be_those_of_rows_are_refused(monkeypatch):
    embeddings, labels = rows()
    metric, ids = RetrievalReport(), torch.arange(40)
    for wrong, told in (
        (ids[:3], r"integers \[40\], one per row; got torch.int64 \(3,\)"),
        (ids.float(), "one per row; got torch.float32"),
        (ids - 1, "ids must be >= 0; got -1"),
    ):
        with pytest.raises(ValueError, match=told):
            metric.update(embeddings, labels, wrong)
    with pytest.raises(ValueError, match="in every call of update, on all processes, or in none"):
        of_processes(monkeypatch, (embeddings, labels, ids), (embeddings, labels)).compute()
    for part in ids.split(20):
        metric.update(embeddings[part], labels[part], torch.arange(20))  # numbers within the batch
    with pytest.raises(ValueError, match="different labels. An id must name one row of the whole data set"):
        metric.compute()


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")  # of torchmetrics, before our error
def test_mistakes_are_told():
    metric = RetrievalReport()
    with pytest.raises(ValueError, match="call update first"):
        metric.compute()
    with pytest.raises(ValueError, match=r"labels must be long \[row\].*float32"):
        metric.update(torch.rand(3, 2), torch.rand(3))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and 2 labels"):
        metric.update(torch.rand(3, 2), torch.tensor([0, 1]))
    metric.update(torch.rand(4, 2), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match=r"embeddings must have the same width.*\(4, 3\) after .*\(4, 2\)"):
        metric.update(torch.rand(4, 3), torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="labels must have the same width.*bool"):  # else they would become integers
        metric.update(torch.rand(4, 2), torch.eye(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `k_s`"):
        RetrievalReport(k_s=3)
    assert RetrievalReport(sync_on_compute=False).sync_on_compute is False


def test_without_the_library_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "rankgrad.adapters.torchmetrics")
    with pytest.raises(ModuleNotFoundError, match="torchmetrics.*pip install"):
        import rankgrad.adapters.torchmetrics  # noqa: F401
