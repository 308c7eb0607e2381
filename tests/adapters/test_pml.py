"""The adapter: inside pytorch-metric-learning a loss has the value and the gradient that it has here."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from datetime import timedelta

import pytest
import torch
from forks import forked, wait
from sweeps import CALIBRATED
from torch import Tensor, nn

from rankgrad import losses, memory
from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import Protocol, evaluate
from rankgrad.ranks.relevance import from_labels

pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an extra")

from pytorch_metric_learning import losses as theirs  # after the check that it is there
from pytorch_metric_learning import miners, reducers, regularizers, testers, trainers
from pytorch_metric_learning.utils import accuracy_calculator
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from pytorch_metric_learning.utils.loss_and_miner_utils import (
    get_all_pairs_indices,
    get_all_triplets_indices,
)

from rankgrad.adapters.pml import (
    AccuracyCalculator,
    CrossBatchMemory,
    PMLAdapter,
    SelfSupervisedLoss,
)

NAMES = list(losses.LOSSES)


def value_and_gradients(loss: nn.Module, *tensors: Tensor, **arguments) -> list[Tensor]:
    """The loss, and its gradient at every embedding that takes part; `tensors` are embeddings and references."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    references = {"ref_emb": leaves[1]} if len(leaves) > 1 else {}
    value = loss(leaves[0], **references, **arguments)
    value.backward()
    return [value.detach(), *(leaf.grad for leaf in leaves)]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# --- value and gradient ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_inside_the_other_library_a_loss_has_its_own_value_and_gradient(name, batch):
    embeddings, labels, ref_emb, ref_labels = batch()
    pairs, triplets = get_all_pairs_indices(labels, ref_labels), get_all_triplets_indices(labels)
    some = tuple(index[::2] for index in pairs)
    own = losses.LOSSES[name]()
    adapter = PMLAdapter(losses.LOSSES[name]())
    for tensors, arguments in (
        ((embeddings,), {"labels": labels}),
        ((embeddings, ref_emb), {"labels": labels, "ref_labels": ref_labels}),
        ((embeddings,), {"labels": labels, "indices_tuple": triplets}),
        ((embeddings, ref_emb), {"labels": labels, "ref_labels": ref_labels, "indices_tuple": some}),
        ((embeddings, ref_emb), {"indices_tuple": some}),  # pairs need no labels
    ):
        assert_equal(
            value_and_gradients(adapter, *tensors, **arguments), value_and_gradients(own, *tensors, **arguments)
        )
    assert own.reduction == "mean" and adapter.loss.reduction == "none"


@pytest.mark.parametrize("name", ["rambo_recall", "rambo_ap"])
def test_the_mean_of_blackbox_values_has_the_gradient_of_the_blackbox_loss(name, batch):
    embeddings, labels, *_ = batch()  # one query of ten has no match
    each = losses.LOSSES[name](reduction="none")
    single = value_and_gradients(losses.LOSSES[name](), embeddings, labels=labels)[1]
    leaf = embeddings.clone().requires_grad_()
    values = each(leaf, labels)
    values[each.stats["counted"]].mean().backward()
    assert single.abs().sum() > 0
    assert_equal([leaf.grad], [single])
    assert_equal(value_and_gradients(PMLAdapter(each), embeddings, labels=labels)[1:], [single])


@pytest.mark.parametrize("name", NAMES)
def test_only_queries_that_count_reach_the_reducer(name, batch):
    embeddings, labels, *_ = batch()
    each = losses.LOSSES[name](reduction="none")
    values = each(embeddings, labels)
    found = PMLAdapter(losses.LOSSES[name](), reducer=reducers.DoNothingReducer())(embeddings, labels)["loss"]
    counted = each.stats["counted"]
    assert found["reduction_type"] == "element" and found["divisor"] == int(counted.sum())
    assert torch.equal(found["indices"], counted.nonzero().squeeze(1))
    assert torch.equal(found["losses"], values[counted])
    alone = int((labels == 0).nonzero())  # the only one of its class
    assert bool(counted[alone]) == (name in CALIBRATED)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_in_which_nothing_counts_is_0_with_a_gradient_of_0(name, batch):
    embeddings = batch().embeddings
    nothing = tuple(torch.tensor([], dtype=torch.long) for _ in range(4))
    adapter = PMLAdapter(losses.LOSSES[name]())
    if name in CALIBRATED:  # every query counts, and costs nothing without pairs
        assert adapter(embeddings, indices_tuple=nothing) == 0
        return
    for arguments in ({"labels": torch.arange(10)}, {"indices_tuple": nothing}):
        value, gradient = value_and_gradients(adapter, embeddings, **arguments)
        assert value == 0 and torch.equal(gradient, torch.zeros_like(gradient))


def test_half_precision_is_computed_in_float32(batch):
    embeddings, labels, *_ = batch()
    half = embeddings.to(torch.bfloat16)
    assert torch.equal(PMLAdapter(losses.SmoothAPLoss())(half, labels), losses.SmoothAPLoss()(half, labels))


# --- reducers, regularizers, miners, sums ----------------------------------------------------------------------------


def test_reducers_do_with_the_values_what_they_do_with_their_own(batch):
    embeddings, labels, *_ = batch(3)
    each = losses.SupAPLoss(reduction="none")
    values = each(embeddings, labels)
    counted = each.stats["counted"]
    values = values[counted]
    values[values < 0.2] = 0

    class Clipped(losses.SupAPLoss):  # some values of exactly 0
        def per_query(self, scores, relevant, valid):
            found, counts = super().per_query(scores, relevant, valid)
            return torch.where(found < 0.2, 0 * found, found), counts

    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    middle = (values > 0.1) & (values < 0.6)
    assert 0 < int((values == 0).sum()) < len(values) and 0 < int(middle.sum()) < len(values)
    for reducer, expected in (
        (None, values.mean()),
        (reducers.MeanReducer(), values.mean()),
        (reducers.AvgNonZeroReducer(), values[values > 0].mean()),
        (reducers.ThresholdReducer(low=0.1, high=0.6), values[middle].mean()),
        (reducers.SumReducer(), values.sum()),
        (reducers.DivisorReducer(), values.mean()),
        (reducers.PerAnchorReducer(), values.mean()),
        (reducers.ClassWeightedReducer(weights), (values * weights[labels[counted]]).mean()),
        (reducers.MultipleReducers({"loss": reducers.SumReducer()}), values.sum()),
    ):
        torch.testing.assert_close(PMLAdapter(Clipped(), reducer=reducer)(embeddings, labels), expected)


def test_an_embedding_regularizer_is_added(batch):
    embeddings, labels, *_ = batch()
    adapter = PMLAdapter(
        losses.SmoothAPLoss(), embedding_regularizer=regularizers.LpRegularizer(), embedding_reg_weight=0.3
    )
    expected = losses.SmoothAPLoss()(embeddings, labels) + 0.3 * embeddings.norm(dim=1).mean()
    torch.testing.assert_close(adapter(embeddings, labels), expected)


@pytest.mark.parametrize(
    "miner",
    [
        miners.MultiSimilarityMiner(),
        miners.BatchHardMiner(),
        miners.TripletMarginMiner(margin=0.4),
        miners.PairMarginMiner(),
        miners.BatchEasyHardMiner(),
    ],
    ids=lambda miner: type(miner).__name__,
)
def test_only_the_pairs_of_a_miner_exist(miner, batch):
    embeddings, labels, *_ = batch(1)
    mined = miner(embeddings, labels)
    relevant, valid = torch.zeros(2, 10, 10, dtype=torch.bool)
    pairs = mined if len(mined) == 4 else (mined[0], mined[1], mined[0], mined[2])
    for query, item in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True):
        relevant[query, item] = valid[query, item] = True
    for query, item in zip(pairs[2].tolist(), pairs[3].tolist(), strict=True):
        valid[query, item] = True
    assert 0 < int(valid.sum()) < 90
    for name in NAMES:
        own = losses.LOSSES[name]()
        expected = value_and_gradients(own, embeddings, relevant=relevant, valid=valid)
        found = value_and_gradients(PMLAdapter(losses.LOSSES[name]()), embeddings, labels=labels, indices_tuple=mined)
        assert_equal(found, expected)


def test_losses_of_both_libraries_add_up(batch):
    embeddings, labels, *_ = batch()
    together = theirs.MultipleLosses(
        [PMLAdapter(losses.SupAPLoss()), PMLAdapter(losses.CalibrationLoss()), theirs.ContrastiveLoss()],
        miners=[None, miners.MultiSimilarityMiner(), None],
        weights=[1, 0.5, 2],
    )
    mined = miners.MultiSimilarityMiner()(embeddings, labels)
    expected = losses.SupAPLoss()(embeddings, labels)
    expected = expected + 0.5 * losses.CalibrationLoss()(embeddings, labels, mined)
    expected = expected + 2 * theirs.ContrastiveLoss()(embeddings, labels)
    torch.testing.assert_close(together(embeddings, labels), expected)


@pytest.mark.parametrize("symmetric", [True, False])
def test_two_views_match_each_other(symmetric, batch):
    one, two = batch().embeddings, batch(1).embeddings
    found = SelfSupervisedLoss(PMLAdapter(losses.SmoothAPLoss()), symmetric=symmetric)(one, two)
    rows, loss = torch.arange(10), losses.SmoothAPLoss()
    expected = (
        loss(torch.cat([one, two]), rows.repeat(2)) if symmetric else loss(one, rows, ref_emb=two, ref_labels=rows)
    )
    torch.testing.assert_close(found, expected)


# --- cross-batch memory ----------------------------------------------------------------------------------------------


def stream(batches: int, size: int = 6):
    g = torch.Generator().manual_seed(3)
    for _ in range(batches):
        yield torch.randn(size, 3, generator=g, dtype=torch.float64), torch.randint(0, 4, (size,), generator=g)


@pytest.mark.parametrize("name", NAMES)
def test_in_their_memory_a_query_meets_every_entry_but_its_own_copy(name):
    memory = CrossBatchMemory(PMLAdapter(losses.LOSSES[name]()), embedding_size=3, memory_size=16)
    own = losses.LOSSES[name]()
    for step, (embeddings, labels) in enumerate(stream(6)):  # it is filled and wraps around in the third
        found = value_and_gradients(memory, embeddings, labels=labels)
        entries = min(6 * (step + 1), 16)
        slots = torch.arange(6 * step, 6 * (step + 1)) % 16  # where the batch was written
        torch.testing.assert_close(memory.embedding_memory[slots], embeddings)
        expected = value_and_gradients(
            own,
            embeddings,
            labels=labels,
            ids=slots,
            ref_emb=memory.embedding_memory[:entries].clone(),
            ref_labels=memory.label_memory[:entries],
            ref_ids=torch.arange(entries),
        )
        assert_equal(found, expected)
        assert expected[1].abs().sum() > 0


def test_their_memory_with_a_miner_and_with_a_mask_of_what_to_enqueue():
    mined = CrossBatchMemory(PMLAdapter(losses.SupAPLoss()), 3, 16, miner=miners.MultiSimilarityMiner())
    masked = CrossBatchMemory(PMLAdapter(losses.SupAPLoss()), 3, 16)
    own = losses.SupAPLoss()
    for embeddings, labels in stream(5):
        found = mined(embeddings, labels)
        filled = len(mined.embedding_memory) if mined.has_been_filled else mined.queue_idx
        items, item_labels = mined.embedding_memory[:filled], mined.label_memory[:filled]
        a1, p, a2, n = miners.MultiSimilarityMiner()(embeddings, labels, items, item_labels)
        other = mined.curr_batch_idx[a1] != p
        torch.testing.assert_close(found, own(embeddings, labels, (a1[other], p[other], a2, n), items, item_labels))

        queued = torch.arange(6) < 3  # these are remembered, the others are queries
        found = masked(embeddings, labels, enqueue_mask=queued)
        filled = len(masked.embedding_memory) if masked.has_been_filled else masked.queue_idx
        items, item_labels = masked.embedding_memory[:filled], masked.label_memory[:filled]
        expected = own(embeddings[~queued], labels[~queued], ref_emb=items, ref_labels=item_labels)
        torch.testing.assert_close(found, expected)


def test_their_memory_takes_their_losses_too_and_theirs_does_not_take_ours():
    memory, plain = (kind(theirs.ContrastiveLoss(), 3, 16) for kind in (CrossBatchMemory, theirs.CrossBatchMemory))
    for embeddings, labels in stream(4):
        assert torch.equal(memory(embeddings, labels), plain(embeddings, labels))
    with pytest.raises(Exception, match="not supported for PMLAdapter"):
        theirs.CrossBatchMemory(PMLAdapter(losses.SupAPLoss()), 3, 16)
    with pytest.raises(Exception, match="not supported for Linear"):
        CrossBatchMemory(nn.Linear(2, 2), 3, 16)


# --- several processes -----------------------------------------------------------------------------------------------


def test_in_one_process_of_a_group_the_distributed_wrapper_changes_nothing(batch, tmp_path):
    embeddings, labels, *_ = batch()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        for name in NAMES:
            wrapped = DistributedLossWrapper(PMLAdapter(losses.LOSSES[name]()))
            own = value_and_gradients(losses.LOSSES[name](), embeddings, labels=labels)
            assert_equal(value_and_gradients(wrapped, embeddings, labels=labels), own)
    finally:
        torch.distributed.destroy_process_group()
    with pytest.warns(UserWarning, match="non-distributed"):
        wrapped(embeddings, labels)


def train_together(rank: int, folder: str) -> None:
    """What each of two processes does: weight gradients of every loss under the wrappers, to a file."""
    data = torch.load(f"{folder}/data.pt")
    sampler = MPerClassBatchSampler(data["labels"], 4, 3, batches_per_epoch=2)  # knows of no processes yet
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )

    def gradients(wrapped: nn.Module, steps: int) -> tuple[Tensor, Tensor]:
        model = nn.Linear(5, 3, bias=False, dtype=torch.float64)
        model.weight.data.copy_(data["weight"])
        replica = nn.parallel.DistributedDataParallel(model)
        for rows in parts[:steps]:
            model.weight.grad = None
            value = wrapped(replica(data["images"][rows]), data["labels"][rows])
            value.backward()
        return value.detach(), model.weight.grad

    try:
        parts = list(sampler)
        found = {
            name: {
                "whole": gradients(DistributedLossWrapper(PMLAdapter(kind())), 1),
                "efficient": gradients(DistributedLossWrapper(PMLAdapter(kind()), efficient=True), 1),
                "memory": gradients(DistributedLossWrapper(CrossBatchMemory(PMLAdapter(kind()), 3, 30)), 2),
                "full": gradients(DistributedLossWrapper(CrossBatchMemory(PMLAdapter(kind()), 3, 20)), 2),
            }
            for name, kind in losses.LOSSES.items()
        }
    finally:
        torch.distributed.destroy_process_group()
    torch.save({"parts": parts, **found}, f"{folder}/{rank}.pt")


@pytest.mark.slow  # test_trainers_distributed.py gathers by others
def test_on_two_processes_the_wrapped_gradient_is_that_of_the_whole_batch_unless_efficient(tmp_path):
    g = torch.Generator().manual_seed(0)
    images, weight = (torch.randn(n, 5, generator=g, dtype=torch.float64) for n in (40, 3))
    labels = torch.arange(5).repeat_interleave(8)
    torch.save({"images": images, "labels": labels, "weight": weight}, tmp_path / "data.pt")
    log = tmp_path / "log.txt"
    other = forked(lambda: train_together(1, str(tmp_path)), log)
    try:
        train_together(0, str(tmp_path))
    finally:
        status = wait(other)
    assert status == 0, log.read_text()
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    whole = [sum(parts, []) for parts in zip(*(each["parts"] for each in found), strict=True)]
    assert [len(rows) for rows in whole] == [12, 12] and len(set(whole[0])) == 12
    of_first = [set(each["parts"][0]) for each in found]

    def gradient(loss, steps=1, *, only: set[int] | None = None) -> tuple[Tensor, Tensor]:
        """On one process; `only` these images are queries, and the others have no graph."""
        w = weight.clone().requires_grad_()
        for rows in whole[:steps]:
            w.grad = None
            embeddings = images[rows] @ w.T
            if only is None:
                value = loss(embeddings, labels[rows])
            else:
                mine = torch.tensor([row in only for row in rows])
                items = torch.where(mine[:, None], embeddings, embeddings.detach())
                ids = torch.tensor(rows)
                value = loss(
                    embeddings[mine],
                    labels[rows][mine],
                    ref_emb=items,
                    ref_labels=labels[rows],
                    ids=ids[mine],
                    ref_ids=ids,
                )
            value.backward()
        return value.detach(), w.grad

    for name, kind in losses.LOSSES.items():
        value, expected = gradient(kind())
        for process in found:
            assert_equal(list(process[name]["whole"]), [2 * value, expected])
        value, expected = gradient(CrossBatchMemory(PMLAdapter(kind()), 3, 30), 2)
        for process in found:
            assert_equal(list(process[name]["memory"]), [2 * value, expected])
        # each process writes its own rows first, so that once it is full other entries are lost on each
        assert found[0][name]["full"][0] != found[1][name]["full"][0]
        # efficient: each process has its own queries only, and no gradient reaches the items of the other
        own = [gradient(kind(), only=rows) for rows in of_first]
        for (part, _), process in zip(own, found, strict=True):
            assert_equal(list(process[name]["efficient"]), [2 * part, own[0][1] + own[1][1]])
        assert (found[0][name]["efficient"][1] - found[0][name]["whole"][1]).abs().max() > 1e-4


# --- training --------------------------------------------------------------------------------------------------------


def test_their_trainer_takes_the_same_steps_as_a_loop_of_ours():
    generator, labels = torch.Generator().manual_seed(0), torch.arange(26).repeat_interleave(12)
    images = torch.rand(26, 28, 28, generator=generator)[labels] + torch.randn(312, 28, 28, generator=generator)

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer, MPerClassBatchSampler]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32))
        return net, torch.optim.Adam(net.parameters(), 3e-3), MPerClassBatchSampler(labels, 16, 4, 15)

    net, optimizer, sampler = fresh()
    seen: list[float] = []
    trainer = trainers.MetricLossOnly(
        models={"trunk": net},
        optimizers={"trunk_optimizer": optimizer},
        batch_size=None,
        loss_funcs={"metric_loss": PMLAdapter(losses.SmoothAPLoss(tau=0.05))},
        dataset=torch.utils.data.TensorDataset(images, labels),
        sampler=sampler,
        data_device=torch.device("cpu"),
        dataloader_num_workers=0,
        end_of_iteration_hook=lambda trainer: seen.append(float(trainer.losses["metric_loss"])),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its progress bar
        trainer.train(num_epochs=2)

    net, optimizer, sampler = fresh()
    loss, expected = losses.SmoothAPLoss(tau=0.05), []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for rows in sampler:
            optimizer.zero_grad()
            value = loss(net(images[rows]), labels[rows])
            value.backward()
            optimizer.step()
            expected.append(value.item())
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=1e-5, atol=1e-6)
    assert sum(seen[-5:]) < 0.9 * sum(seen[:5])


# --- the object ------------------------------------------------------------------------------------------------------


class Weighted(losses.SmoothAPLoss):
    """A loss with a weight that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def per_query(self, scores, relevant, valid):
        values, counted = super().per_query(scores, relevant, valid)
        return self.weight * values, counted


def test_parameters_are_those_of_the_loss_and_move_with_the_adapter(batch):
    embeddings, labels, *_ = batch()
    loss = Weighted()
    adapter = PMLAdapter(loss)
    assert [p is loss.weight for p in adapter.parameters()] == [True]
    adapter.double()
    assert loss.weight.dtype == torch.float64
    adapter(embeddings, labels).backward()
    assert loss.weight.grad is not None and loss.weight.grad > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_pickles_copies_and_prints_the_arguments_of_its_loss(name, batch):
    embeddings, labels, *_ = batch()
    adapter = PMLAdapter(losses.LOSSES[name](), reducer=reducers.AvgNonZeroReducer())
    value = adapter(embeddings, labels)
    for other in (pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter)):
        assert torch.equal(other(embeddings, labels), value)
    assert losses.LOSSES[name](reduction="none").extra_repr() in repr(adapter)


def test_the_distance_it_reports_is_that_of_the_loss(batch):
    embeddings, labels, *_ = batch()
    relevant, valid = from_labels(labels)
    for normalize in (True, False):
        adapter = PMLAdapter(losses.SupAPLoss(normalize=normalize))
        scores = adapter.distance(embeddings)
        torch.testing.assert_close(adapter(embeddings, labels), losses.SupAPLoss().from_scores(scores, relevant, valid))


def test_what_does_not_fit_is_refused_with_what_to_do(batch):
    embeddings, labels, *_ = batch()
    adapter = PMLAdapter(losses.HAPLoss())
    with pytest.raises(ValueError, match=r"got torch.int64 \(10, 2\).*multi-hot"):
        adapter(embeddings, torch.stack([labels, labels], 1))
    with pytest.raises(ValueError, match=r"got torch.bool \(10, 4\)"):
        adapter(embeddings, torch.rand(10, 4) > 0.5)
    with pytest.raises(ValueError, match="pytorch-metric-learning.*ref_labels"):
        adapter(embeddings, labels, ref_emb=embeddings.clone(), ref_labels=labels.double())
    with pytest.raises(ValueError, match="labels are needed"):
        adapter(embeddings)
    with pytest.raises(TypeError, match="got ContrastiveLoss"):
        PMLAdapter(theirs.ContrastiveLoss())
    with pytest.raises(TypeError, match="got SumLoss. Adapt each part.*MultipleLosses"):
        PMLAdapter(losses.SumLoss({"rank": losses.SupAPLoss()}, {"rank": 1.0}))
    with pytest.raises(TypeError, match=r"got CrossBatchMemory. Put the memory outside: rankgrad.adapters.pml"):
        PMLAdapter(memory.CrossBatchMemory(losses.SupAPLoss(), 8))
    with pytest.raises(TypeError, match="cosine .normalize=True"):
        PMLAdapter(losses.SupAPLoss(), distance=None)


def test_without_the_library_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    monkeypatch.delitem(sys.modules, "rankgrad.adapters.pml")
    with pytest.raises(ModuleNotFoundError, match="pip install pytorch-metric-learning"):
        import rankgrad.adapters.pml  # noqa: F401


# --- evaluation ------------------------------------------------------------------------------------------------------


def brute_force(query: Tensor, k: int, reference: Tensor, ref_includes_query: bool) -> tuple[Tensor, Tensor]:
    """Their calculator's search, without faiss: exact, the query's own row left out."""
    distances = torch.cdist(query.double(), reference.double())
    if ref_includes_query:
        distances.fill_diagonal_(torch.inf)
    return distances.topk(k, largest=False)


def in_groups(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 9, (rows,), generator=g)
    labels[0] = 30 + seed  # nothing matches it
    return torch.randn(rows, 5, generator=g), labels


@pytest.mark.parametrize("how", [{}, {"avg_of_avgs": True}, {"return_per_class": True}], ids=str)
@pytest.mark.parametrize("gallery", ["itself", "another", "itself and more"])
def test_the_calculator_has_the_numbers_of_theirs(how, gallery):
    query, labels = in_groups(60, 0)
    arguments: tuple = (query, labels)
    if gallery != "itself":
        reference, ref_labels = in_groups(40, 1)
        if gallery == "itself and more":
            reference, ref_labels = torch.cat([query, reference]), torch.cat([labels, ref_labels])
        arguments = (query, labels, reference, ref_labels, gallery == "itself and more")
    skipped, cpu = ("NMI", "AMI"), torch.device("cpu")
    theirs_says = accuracy_calculator.AccuracyCalculator(
        exclude=skipped, knn_func=brute_force, kmeans_func=len, device=cpu, **how
    ).get_accuracy(*arguments)
    ours = AccuracyCalculator(exclude=skipped, device=cpu, **how)
    found = ours.get_accuracy(*arguments)
    assert set(found) == set(theirs_says) == set(ours.get_curr_metrics()) and len(found) == 5
    for name, wanted in theirs_says.items():
        assert found[name] == pytest.approx(wanted, abs=1e-6), name
    assert ours.report is not None and ours.report.without_relevant.tolist() == [0]
    numbers = [each.numpy() for each in arguments[:2]]
    if gallery == "itself":
        assert ours.get_accuracy(*numbers) == found
        assert ours.get_accuracy(query, labels.unsqueeze(1), query, labels.unsqueeze(1), True) == found


def test_extra_metrics_and_clusters_come_by_name():
    query, labels = in_groups(60, 0)
    calculator = AccuracyCalculator(
        include=("NMI", "precision_at_1"), device=torch.device("cpu"), metrics=["R@4", "NDCG"]
    )
    found = calculator.get_accuracy(query, labels)
    wanted = evaluate(query, labels, similarity="euclidean", metrics=["NMI", "P@1", "R@4", "NDCG"], intervals=0).values
    assert found == {
        "NMI": wanted["NMI"], "precision_at_1": wanted["P@1"], "R@4": wanted["R@4"], "NDCG": wanted["NDCG"]
    }  # fmt: skip
    assert set(calculator.get_accuracy(query, labels, exclude=("NMI",))) == {"precision_at_1", "R@4", "NDCG"}


def test_their_tester_takes_the_calculator_without_faiss(monkeypatch):
    from pytorch_metric_learning.utils import inference

    monkeypatch.setattr(inference, "faiss", None, raising=False)
    images, labels = in_groups(60, 0)
    more, more_labels = in_groups(50, 1)
    both = [torch.utils.data.TensorDataset(images, torch.stack([labels // 3, labels], 1))]
    both.append(torch.utils.data.TensorDataset(more, torch.stack([more_labels // 3, more_labels], 1)))
    calculator = AccuracyCalculator(exclude=("NMI", "AMI"), device=torch.device("cpu"), metrics=["R@4"])
    tester = testers.GlobalEmbeddingSpaceTester(
        accuracy_calculator=calculator,
        label_hierarchy_level="all",
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
    )
    network = nn.Linear(5, 3)
    found = tester.test(
        dict(zip(("val", "train"), both, strict=True)), 1, network, splits_to_eval=[("val", ["val", "train"])]
    )["val"]
    with torch.no_grad():
        rows, others = network(images), network(more)
    for level, (mine, theirs_are) in enumerate(((labels // 3, more_labels // 3), (labels, more_labels))):
        wanted = evaluate(
            rows,
            mine,
            ref_embeddings=torch.cat([rows, others]),
            ref_labels=torch.cat([mine, theirs_are]),
            protocol=Protocol(ids=torch.arange(60), ref_ids=torch.arange(110)),
            intervals=0,
        ).values
        assert found[f"R@4_level{level}"] == wanted["R@4"]
        assert found[f"mean_average_precision_at_r_level{level}"] == pytest.approx(wanted["mAP@R"], abs=1e-9)
    assert found["AVERAGE_R@4"] == (found["R@4_level0"] + found["R@4_level1"]) / 2


def test_mistakes_of_an_evaluation_are_told():
    query, labels = in_groups(20, 0)
    with pytest.raises(ValueError, match="max_bin_count.*AP@10"):
        AccuracyCalculator(k="max_bin_count")
    with pytest.raises(ValueError, match="metrics must be a list of metrics by name, such as .* got 'R@4'"):
        AccuracyCalculator(metrics="R@4")
    with pytest.raises(ValueError, match="Primary metrics must be one or more"):
        AccuracyCalculator(include=("recall",))
    calculator = AccuracyCalculator(exclude=("NMI", "AMI"), device=torch.device("cpu"))
    for arguments, told in (
        ((query, labels.double()), r"query_labels must be integers \[row\]"),
        ((query, torch.stack([labels, labels], 1)), r"one class per row; got torch.int64 \(20, 2\)"),
        ((query, labels, query), "needs reference_labels; got none"),
        ((query, labels, query.flip(0), labels, True), "first rows of reference must equal"),
        ((query, labels, query[:5], labels[:5], True), "first rows of reference must equal"),
    ):
        with pytest.raises(ValueError, match=told):
            calculator.get_accuracy(*arguments)


LARGE = """
import resource
import torch
from rankgrad.adapters.pml import AccuracyCalculator
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
rows, labels = torch.randn(60_000, 16, generator=g), torch.randint(0, 11_000, (60_000,), generator=g)
calculator = AccuracyCalculator(exclude=("NMI", "AMI"), device=torch.device("cpu"))
held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
calculator.get_accuracy(rows, labels)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs elsewhere")
def test_60_000_queries_against_as_many_need_less_than_2_gib():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 * 2**20  # KiB
