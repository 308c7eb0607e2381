"""Our losses and metrics against numbers of the papers' own code and of brute force (tests/golden/README.md)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rankgrad import blackbox_rank, detection, losses, metrics, relevance
from rankgrad.losses import RankLoss
from rankgrad.ranks import exact_ranks

FOLDER = Path(__file__).parents[1] / "golden"
CASES = json.loads((FOLDER / "cases.json").read_text())
ARRAYS = np.load(FOLDER / "arrays.npz")
DETECTION = ("rambo_mAP", "rambo_AP_C", "rambo_combined", "rambo_map_memory")
PRECISIONS = {"f64": torch.float64, "f32": torch.float32}


def arrays(case: dict, prefix: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Arrays of a case by name, without prefix; floats in the precision asked for."""
    found: dict[str, Tensor] = {}
    suffix = "_f32" if dtype == torch.float32 else ""
    start = f"{case['id']}/{prefix}_"
    for key in ARRAYS.files:
        if not key.startswith(start) or key.endswith("_f32"):
            continue
        name = key + suffix if key + suffix in ARRAYS.files else key
        found[key.removeprefix(start)] = torch.from_numpy(ARRAYS[name].copy())
    return found


def rambo(case: dict) -> dict:
    hp = case["hyperparams"]
    aggregation = {"per_query": "query", "pooled": "pooled", None: "query"}[hp.get("aggregation")]
    return {
        "lambda_": hp["lambda"],
        "margin": hp["margin"],
        "normalized_ranks": hp["normalised_ranks"],
        "aggregation": aggregation,
    }


def step(case: dict) -> dict:
    hp = case["hyperparams"]
    options = {k: hp[k] for k in ("tau", "rho", "delta", "start", "tie") if k in hp}
    if isinstance(hp.get("offset"), float):
        options["offset"] = hp["offset"]
    return options


def detector_loss(case: dict) -> detection.DetectionAPLoss:
    """The loss of a detection case: one of its terms, or both."""
    hp = case["hyperparams"]
    both = (1 - hp["interclass_coef"], hp["interclass_coef"]) if hp.get("interclass_coef") else (2, 1)
    weights = {"rambo_mAP": (1, 0), "rambo_AP_C": (0, 1)}.get(case["loss"], both)
    options = {"memory": hp.get("memory", 0), "weights": weights, "normalized_ranks": hp["normalised_ranks"]}
    return detection.DetectionAPLoss(hp["lambda"], hp["margin"], **options)


def build(case: dict) -> torch.nn.Module:
    """The loss a case speaks of, through public options."""
    if case["loss"] in DETECTION:
        return detector_loss(case)
    hp, protocol = case["hyperparams"], case["protocol"]["self"]
    common: dict = {"normalize": "pml" in case["id"] or case["id"].startswith(("calibration_official", "xbm"))}
    if protocol == "included":
        common["include_self"] = True
    name = case["loss"]
    if name == "rambo_recall":
        return losses.RaMBORecallLoss(weight=hp["weight"], **rambo(case), **common)
    if name == "rambo_AP_retrieval":
        return losses.RaMBOAPLoss(**rambo(case), **common)
    if name == "smoothap":
        return losses.SmoothAPLoss(tau=hp["tau"], **common)
    if name == "exact_ap":
        return RankLoss(exact_ranks, metric=metrics.average_precision, **common)
    if name == "supap":
        return losses.SupAPLoss(**step(case), **common)
    if name in ("calibration", "xbm_calibration"):
        query = hp.get("reduction") == "per_query"
        aggregation = "query" if query else "avg_non_zero"
        return losses.CalibrationLoss(hp["alpha"], hp["beta"], aggregation, **common)
    if name == "roadmap":
        return losses.ROADMAPLoss(alpha=hp["alpha"], beta=hp["beta"], weight=hp["lambda"], **step(case), **common)
    if name == "pnp":
        options = {k: hp[k] for k in ("variant", "tau", "alpha", "b") if k in hp}
        return losses.PNPLoss(**options, **common)
    if name == "fastap":
        return losses.FastAPLoss(bins=hp["num_bins"], **common)
    if name == "softbinap":
        return losses.SoftBinAPLoss(bins=hp["nq"], low=hp["min"], high=hp["max"], **common)
    if name == "recall_at_k_surrogate":
        options = {"rank_query": protocol.startswith("ranked"), "clip": hp.get("clip", True)}
        return losses.RecallAtKLoss(k=hp["ks"], tau1=hp["tau1"], tau2=hp["tau2"], **options, **common)
    if name == "hap":
        order = {"order": hp["order"]} if "order" in hp else {}
        return losses.HAPLoss(**step(case), **order, **common)
    if name == "sup_ndcg":
        return losses.SupNDCGLoss(**step(case), **common)
    if name == "sup_recall":
        return losses.SupRecallLoss(k=hp["ks"], tau2=hp["tau2"], **step(case), **common)
    if name == "smooth_ndcg":
        return losses.NDCGLoss(tau=hp["tau"], gain=hp["gain"], **common)
    if name == "auc_bh":
        return losses.AUCLoss(step=hp["delta_s"], slope=hp["slope"], t_min=hp["t_min"], t_max=hp["t_max"], **common)
    if name == "roc_auc":
        return losses.ROCAUCLoss(tau=hp["tau"], fpr=hp["fpr"], **common)
    if name == "list_net":
        return losses.ListNetLoss(tau=hp["tau"], **common)
    if name == "lambda":
        return losses.LambdaLoss(hp["metric"], hp["k"], hp["tau"], **common)
    raise AssertionError(f"no loss for {name}")


def evaluate(case: dict, given: dict[str, Tensor]) -> Tensor:
    """Call the loss as the case's protocol says."""
    loss = build(case)
    if case["loss"] in DETECTION:
        return loss(given["logits"], given["targets"])
    if "scores" in given:
        return loss.from_scores(given["scores"], given["relevance"], given.get("valid"))
    if case["loss"] == "roadmap" and case["protocol"]["self"].startswith("included"):
        hp = case["hyperparams"]
        supap = losses.SupAPLoss(**step(case), include_self=True, normalize=False)
        calibration = losses.CalibrationLoss(hp["alpha"], hp["beta"], "avg_non_zero")  # that one normalises again
        weight = hp["lambda"]
        return (1 - weight) * supap(given["embeddings"], given["labels"]) + weight * calibration(
            given["embeddings"], given["labels"]
        )
    if "relevance_values" in given:
        return loss(given["embeddings"], relevant=given["relevance_values"])
    if case["loss"] == "smooth_ndcg":  # their gains are levels, those of our labels HAPPIER's
        levels = relevance.shared_levels(given["labels"], given["labels"])
        return loss(given["embeddings"], relevant=levels.to(given["embeddings"].dtype))
    references = (
        {"ref_emb": given["ref_embeddings"], "ref_labels": given["ref_labels"]} if "ref_labels" in given else {}
    )
    labels, embeddings = given["labels"], given["embeddings"]
    if case["hyperparams"].get("binary") or case["loss"] == "recall_at_k_surrogate":
        labels = labels if labels.dim() == 1 else labels[:, -1]  # the finest level
    if "pml" in case["id"] and case["loss"] == "pnp":
        # that library drops anchors without another of their class, although it keeps the query as a positive
        kept = (labels.unsqueeze(0) == labels.unsqueeze(1)).sum(1) > 1
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        return loss(embeddings, relevant=same & kept.unsqueeze(1))
    return loss(embeddings, labels, **references)


def tolerance(case: dict, precision: str) -> dict[str, float]:
    loose = dict(case["tolerance"][precision])
    repo = case["source"].get("repo")
    if case["loss"] in ("rambo_AP_retrieval", *DETECTION) and repo:  # their denominators carry P + 1e-5
        loose.update(rtol=2e-5, atol=2e-5, grad_rtol=max(2e-5, loose["grad_rtol"]))
    return loose


def check_gradient(case: dict, precision: str, got: Tensor, expected: Tensor) -> None:
    loose = tolerance(case, precision)
    scale = loose.get("grad_atol_rel_to_max", 0.0) * expected.abs().max().item()
    torch.testing.assert_close(got, expected, rtol=loose["grad_rtol"], atol=loose["grad_atol"] + scale)


LOSS_CASES = [c for c in CASES if c["kind"] == "loss" and c["loss"] not in ("xbm_calibration", "rambo_map_memory")]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", LOSS_CASES, ids=lambda c: c["id"])
def test_loss_and_gradient_equal_the_golden_numbers(case, precision):
    dtype = PRECISIONS[precision]
    given, expected = arrays(case, "in", dtype), arrays(case, "exp", dtype)
    leaves = {k[5:]: given[k[5:]].requires_grad_() for k in expected if k.startswith("grad_") and k[5:] in given}
    value = evaluate(case, given)
    loose = tolerance(case, precision)
    assert value.item() == pytest.approx(expected["loss"].item(), rel=loose["rtol"], abs=loose["atol"])
    if case["loss"] == "fastap" and case["source"].get("repo"):
        return  # that gradient is not the gradient of its value
    if leaves:
        value.backward()
    for name, leaf in leaves.items():
        check_gradient(case, precision, leaf.grad, expected[f"grad_{name}"])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", [c for c in CASES if c["loss"] == "rambo_rank"], ids=lambda c: c["id"])
def test_blackbox_ranks_and_gradient_equal_the_golden_numbers(case, precision):
    dtype = PRECISIONS[precision]
    given, expected = arrays(case, "in", dtype), arrays(case, "exp", dtype)
    scores = given["scores"].requires_grad_()
    hp = case["hyperparams"]
    ranks = blackbox_rank(scores, hp["lambda"], normalized=hp["normalised_ranks"])
    torch.testing.assert_close(ranks, expected["ranks"].to(dtype))
    (ranks * given["upstream"]).sum().backward()
    check_gradient(case, precision, scores.grad, expected["grad_scores"])


def test_calibration_with_a_memory_equals_cross_batch_memory_of_the_golden_case():
    (case,) = [c for c in CASES if c["loss"] == "xbm_calibration"]
    given, expected = arrays(case, "in", torch.float64), arrays(case, "exp", torch.float64)
    loss, size = build(case), case["hyperparams"]["memory_size"]
    memory, values, ids = [], [], 0
    for batch in range(3):
        embeddings, labels = given[f"embeddings{batch}"].requires_grad_(), given[f"labels{batch}"]
        mine = torch.arange(ids, ids + len(labels))
        ids += len(labels)
        memory += list(zip(embeddings.detach(), labels, mine, strict=True))
        memory = memory[-size:]
        ref, ref_labels, ref_ids = (torch.stack(column) for column in zip(*memory, strict=True))
        value = loss(embeddings, labels, ref_emb=ref, ref_labels=ref_labels, ids=mine, ref_ids=ref_ids)
        values.append(value)
    torch.testing.assert_close(torch.stack(values).detach(), expected["losses"])
    values[-1].backward()
    check_gradient(case, "f64", embeddings.grad, expected["grad_embeddings2"])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", [c for c in CASES if c["loss"] == "rambo_map_memory"], ids=lambda c: c["id"])
def test_detection_loss_with_a_memory_equals_the_golden_numbers_batch_by_batch(case, precision):
    dtype = PRECISIONS[precision]
    given, expected = arrays(case, "in", dtype), arrays(case, "exp", dtype)
    loss, values = detector_loss(case), []
    for batch in range(3):
        logits = given[f"logits{batch}"].requires_grad_()
        values.append(loss(logits, given[f"targets{batch}"]))
    loose = tolerance(case, precision)
    torch.testing.assert_close(
        torch.stack(values).detach(), expected["losses"].to(dtype), rtol=loose["rtol"], atol=loose["atol"]
    )
    values[-1].backward()
    check_gradient(case, precision, logits.grad, expected["grad_logits2"])


PER_QUERY = {
    "average_precision": metrics.average_precision,
    "map_at_r": metrics.map_at_r,
    "r_precision": metrics.r_precision,
    "roc_auc": metrics.roc_auc,
}
METRIC_CASES = [c for c in CASES if c["kind"] == "metric"]


@pytest.mark.parametrize("case", METRIC_CASES, ids=lambda c: c["id"])
def test_metric_equals_the_golden_numbers(case):
    given, expected = arrays(case, "in", torch.float64), arrays(case, "exp", torch.float64)
    name, loose = case["loss"], {"rtol": 1e-6, "atol": 1e-6}
    if name in PER_QUERY:
        value = PER_QUERY[name](given["scores"], given["relevance"])
        torch.testing.assert_close(value, expected["per_query"].double(), **loose)
        if "reciprocal_rank" in expected:
            value = metrics.reciprocal_rank(given["scores"], given["relevance"])
            torch.testing.assert_close(value, expected["reciprocal_rank"].double(), **loose)
    elif name == "ndcg":
        value = metrics.ndcg(given["scores"], given["gains"], k=case["hyperparams"]["k"])
        torch.testing.assert_close(value, expected["per_query"].double(), **loose)
    elif name == "recall_at_k":
        k, pair = case["hyperparams"]["k"], (given["scores"], given["relevance"])
        for read, key in (
            (metrics.recall_at_k, "hit_rate"),
            (metrics.item_recall_at_k, "ir_recall"),
            (metrics.precision_at_k, "precision"),
        ):
            torch.testing.assert_close(read(*pair, k), expected[key].double(), **loose)
    elif name == "spearman":
        torch.testing.assert_close(metrics.spearman(given["x"], given["y"]), expected["loss"].double(), **loose)
        if len(given["x"].unique()) == len(given["x"]):  # ranks of a loss are a permutation
            cost = losses.SpearmanLoss().from_scores(given["x"][None], (given["y"] - given["y"].min())[None])
            torch.testing.assert_close(1 - cost, expected["loss"].double(), **loose)
    elif name == "nmi":
        assert metrics.nmi(given["labels"], given["clusters"]) == pytest.approx(expected["loss"].item(), abs=1e-6)
    elif name == "dists_intra_inter":
        intra = metrics.dists_intra(given["embeddings"], given["labels"])
        inter = metrics.dists_inter(given["embeddings"], given["labels"])
        assert (intra, inter) == pytest.approx((expected["intra"].item(), expected["inter"].item()), abs=1e-6)
    elif name == "retrieval_metrics":
        unit = torch.nn.functional.normalize(given["embeddings"], dim=1)
        scores, labels = unit @ unit.T, given["labels"]
        valid = ~torch.eye(len(labels), dtype=torch.bool)
        lists = (scores, labels.unsqueeze(0) == labels.unsqueeze(1), valid)
        ranks = exact_ranks(*lists)
        counted = ranks.counted
        for read, key in (
            (metrics.average_precision, "map"),
            (metrics.map_at_r, "map_at_r"),
            (metrics.r_precision, "r_precision"),
            (lambda r: metrics.precision_at_k(r, 1), "precision_at_1"),
        ):
            assert read(ranks)[counted].mean().item() == pytest.approx(expected[key].item(), abs=1e-6)
        for k in (1, 2, 4, 8):
            hits = metrics.recall_at_k(*lists[:2], k, lists[2]).mean().item()
            assert hits == pytest.approx(expected[f"hit_rate_at_{k}_all_queries"].item(), abs=1e-6)
    else:
        raise AssertionError(f"no metric for {name}")


def test_no_golden_case_is_forgotten():
    assert len(LOSS_CASES) + len(METRIC_CASES) + 8 + 1 + 2 == len(CASES)
