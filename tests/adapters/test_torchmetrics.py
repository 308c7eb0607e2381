"""As a metric of torchmetrics the report has our numbers, whatever the batches."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch

pytest.importorskip("torchmetrics", reason="torchmetrics is an extra")

from torchmetrics import MetricCollection  # noqa: E402  # after the check that it is there

from rankgrad.adapters.torchmetrics import RetrievalReport  # noqa: E402
from rankgrad.evaluation import evaluate  # noqa: E402


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
    metric = filled(RetrievalReport(ks=(1, 3), extra=["AP@5"], similarity="euclidean"), embeddings, labels)
    wanted = evaluate(embeddings, labels, ks=(1, 3), extra=["AP@5"], similarity="euclidean", clusters="none").values
    found = metric.compute()
    assert {name: float(value) for name, value in found.items()} == wanted
    assert all(value.dtype == torch.float64 and value.ndim == 0 for value in found.values())


def test_a_reset_forgets_and_the_report_has_intervals():
    metric = filled(RetrievalReport(prefix="val/", bootstrap=50), *rows())
    assert metric.report is None and "val/R@1" in metric.compute()
    assert metric.report == evaluate(*rows(), bootstrap=50, clusters="none")
    metric.reset()
    other = rows(30, seed=1)
    assert filled(metric, *other).compute()["val/AP"] == evaluate(*other, clusters="none").values["AP"]


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
        assert float(found["AP"]) == evaluate(embeddings[part], labels[part], clusters="none").values["AP"]
    assert float(metric.compute()["AP"]) == evaluate(embeddings, labels, clusters="none").values["AP"]


@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")  # of torchmetrics, before our error
def test_mistakes_are_told():
    metric = RetrievalReport()
    with pytest.raises(ValueError, match="call update first"):
        metric.compute()
    with pytest.raises(ValueError, match=r"labels must be long \[image\].*float32"):
        metric.update(torch.rand(3, 2), torch.rand(3))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and 2 labels"):
        metric.update(torch.rand(3, 2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `k_s`"):
        RetrievalReport(k_s=3)
    assert RetrievalReport(sync_on_compute=False).sync_on_compute is False


def test_without_the_library_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, "rankgrad.adapters.torchmetrics")
    with pytest.raises(ModuleNotFoundError, match="torchmetrics.*pip install"):
        import rankgrad.adapters.torchmetrics  # noqa: F401
