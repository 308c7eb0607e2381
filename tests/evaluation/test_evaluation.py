from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from sklearn.metrics import ndcg_score
from torch import Tensor

from rankgrad import metrics
from rankgrad.evaluation import METRICS, Bootstrap, Protocol, Report, evaluate, measures
from rankgrad.ranks.normalize import unit_rows

GOLDEN = Path(__file__).parents[1] / "golden" / "arrays.npz"


def whole(*shape: int, seed: int = 0, values: int = 3) -> Tensor:
    """Small whole numbers: their inner products are exact in any order of summation, and often tied."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-values, values + 1, shape, generator=generator).float()


def plain(x: Tensor, labels: Tensor, **settings: object) -> Report:
    """Exact arithmetic."""
    protocol = {field.name: settings.pop(field.name) for field in fields(Protocol) if field.name in settings}
    usual = {"similarity": "inner product", "intervals": 0, "protocol": Protocol(**protocol)}
    return evaluate(x, labels, **(usual | settings))


def slow_metrics(scores: list[float], relevant: list[bool], own: int, ks: tuple[int, ...]) -> dict[str, float] | None:
    """Every metric of one query from lists sorted by the definition; None without a relevant item."""
    items = [i for i in range(len(scores)) if i != own]
    listed = [relevant[i] for i in sorted(items, key=lambda i: (-scores[i], i))]  # ties by index
    positives = [i for i in items if relevant[i]]
    r = len(positives)
    if not r:
        return None
    rest = [i for i in items if not relevant[i]]
    # level items share the mean discount of their places
    places: dict[float, list[float]] = {}
    for place, i in enumerate(sorted(items, key=lambda i: -scores[i]), start=1):
        places.setdefault(scores[i], []).append(1 / math.log2(1 + place))
    gained = sum(sum(places[scores[i]]) / len(places[scores[i]]) for i in positives)
    wins = sum((scores[i] > scores[j]) + (scores[i] == scores[j]) / 2 for i in positives for j in rest)
    # a tied item counts as above, in both ranks
    rank = {i: sum(scores[j] >= scores[i] for j in items) for i in positives}
    among = {i: sum(scores[j] >= scores[i] for j in positives) for i in positives}
    return {
        **{f"R@{k}": float(any(listed[:k])) for k in ks},
        "mAP@R": sum(among[i] / rank[i] for i in positives if rank[i] <= r) / r,
        "AP": sum(among[i] / rank[i] for i in positives) / r,
        "R-precision": sum(rank[i] <= r for i in positives) / r,
        "P@1": float(listed[0]),
        "MRR": 1 / (1 + listed.index(True)),
        "NDCG": gained / sum(1 / math.log2(1 + place) for place in range(1, r + 1)),
        "ROC AUC": wins / (r * len(rest)),
    }


def check_against_slow(report: Report, scores: Tensor, relevant: Tensor, own: Tensor, ks: tuple[int, ...]) -> None:
    want = [slow_metrics(scores[q].tolist(), relevant[q].tolist(), int(own[q]), ks) for q in range(len(scores))]
    kept = [w for w in want if w is not None]
    assert report.without_relevant.tolist() == [q for q, w in enumerate(want) if w is None]
    assert {*report.per_query} >= {*kept[0]}
    for name in kept[0]:
        expected = [0.0 if w is None else w[name] for w in want]
        np.testing.assert_allclose(report.per_query[name], expected, atol=1e-12)
        assert report.values[name] == pytest.approx(sum(w[name] for w in kept) / len(kept), abs=1e-12)


@pytest.mark.parametrize("values", [1, 30])
def test_leave_one_out_equals_plain_loops(values):
    x, labels = whole(40, 3, values=values), torch.tensor([0] * 4 + [1] * 20 + [2] * 15 + [3])
    report = plain(x, labels, metrics=[*METRICS, "R@3", "R@100"])
    check_against_slow(report, x @ x.T, labels[:, None] == labels, torch.arange(40), (1, 3, 100))
    assert (
        report.counts["counted"] == 39 and report.counts["queries"] == 40 and report.without_relevant.tolist() == [39]
    )


def test_query_against_gallery_with_shared_samples_equals_plain_loops():
    gallery, ref_labels = whole(30, 3, values=2), torch.arange(30) % 4
    x, labels = torch.cat([gallery[[3, 8]], whole(9, 3, seed=1, values=2)]), torch.tensor([3, 0] + [0, 1, 2] * 3)
    names = [f"{i}.png" for i in range(30)]
    mine = ["3.png", "8.png"] + [f"other{i}.png" for i in range(9)]
    report = plain(x, labels, ref_embeddings=gallery, ref_labels=ref_labels, ids=mine, ref_ids=names)
    own = torch.tensor([3, 8] + [-1] * 9)
    check_against_slow(report, x @ gallery.T, labels[:, None] == ref_labels, own, (1, 2, 4, 8))
    assert report.counts["gallery"] == 30 and report.settings["protocol"] == "query-gallery"


def test_multi_hot_labels_equal_plain_loops_and_fill_a_row_per_label():
    x, labels = whole(25, 3), torch.rand(25, 4, generator=torch.Generator().manual_seed(3)) > 0.7
    report = plain(x, labels, intervals=20)
    check_against_slow(report, x @ x.T, (labels[:, None] & labels).any(2), torch.arange(25), (1, 2, 4, 8))
    assert [row["queries"] for row in report.per_class] == labels.sum(0).tolist()
    assert report.settings["resample"] == "query" and "NMI" not in report.values


def test_hierarchical_labels_are_evaluated_at_every_level_and_may_be_numbered_inside_their_parent():
    x = whole(24, 3)
    coarse, fine = torch.arange(24) % 2, torch.arange(24) // 2 % 3
    report = plain(x, torch.stack([coarse, fine], dim=1))
    both = coarse * 3 + fine
    graded = ("H-AP", "H-NDCG")
    assert {name: v for name, v in report.values.items() if name not in graded} == plain(x, both).values
    assert report.levels[0]["AP"] == plain(x, coarse).values["AP"]
    assert [row["super_label"] for row in report.per_super_label] == [0, 1]
    assert [row["class"] for row in report.per_class] == [0, 1, 2, 0, 1, 2]
    assert "AP (level 0)" in str(report)


@pytest.mark.parametrize("block", [1, 5, 1000])
def test_any_block_size_gives_the_same_report(block):
    x, labels = whole(50, 3), torch.arange(50) % 6
    assert plain(x, labels, block=block).to_json() == plain(x, labels).to_json()


@pytest.mark.parametrize("kind", ["balanced", "unbalanced", "singletons"])
def test_golden_numbers_of_pytorch_metric_learning(kind):
    data = np.load(GOLDEN)
    case = f"metric_retrieval_emb_{kind}/"
    x, labels = data[case + "in_embeddings"], data[case + "in_labels"]
    report = evaluate(x, labels, intervals=0)
    for ours, theirs in [
        ("AP", "map"),
        ("mAP@R", "map_at_r"),
        ("P@1", "precision_at_1"),
        ("R-precision", "r_precision"),
    ]:
        assert report.values[ours] == pytest.approx(float(data[case + "exp_" + theirs]), abs=1e-6)
    misses = evaluate(x, labels, protocol=Protocol(without_relevant="zero"), intervals=0)
    for k in (1, 2, 4, 8):
        assert misses.values[f"R@{k}"] == pytest.approx(float(data[f"{case}exp_hit_rate_at_{k}_all_queries"]), abs=1e-6)


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.from_numpy(found.data[::6]).float(), torch.from_numpy(found.target[::6])


def test_average_precision_of_real_digits_equals_scikit_learn():
    from sklearn.metrics import average_precision_score

    x, labels = digits()
    x = x.double()  # else scores an ulp apart may change places between the two matrix products
    report = evaluate(x, labels, intervals=0)
    unit = unit_rows(x)
    for q in range(0, len(x), 10):
        others = torch.arange(len(x)) != q
        want = average_precision_score(labels[others] == labels[q], unit[others] @ unit[q])
        assert report.per_query["AP"][q] == pytest.approx(want, abs=1e-6)


def test_real_digits_equal_pytorch_metric_learning():
    accuracy = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.inference import CustomKNN

    x, labels = digits()
    calculator = accuracy.AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_reciprocal_rank"),
        k=len(x) - 1,
        knn_func=CustomKNN(CosineSimilarity()),
        device=torch.device("cpu"),
    )
    theirs = calculator.get_accuracy(x, labels)
    ours = evaluate(x, labels, intervals=0).values
    for name, key in [
        ("P@1", "precision_at_1"),
        ("R-precision", "r_precision"),
        ("mAP@R", "mean_average_precision_at_r"),
        ("MRR", "mean_reciprocal_rank"),
    ]:
        assert ours[name] == pytest.approx(theirs[key], abs=1e-6)


def test_nmi_and_distances_are_those_of_the_metrics_on_separable_data():
    x = torch.eye(3).repeat_interleave(5, dim=0) + 0.01 * whole(15, 3)
    labels = torch.arange(3).repeat_interleave(5)
    report = evaluate(x, labels, metrics=[*METRICS, "NMI"], intervals=0)
    assert report.values["NMI"] == pytest.approx(1)
    assert report.values["AUC_hardest"] == 1
    assert report.values["dists_intra"] < 0.05 < 0.9 < report.values["dists_inter"]
    assert report.settings["clusters"] == "KMeans(k=3, n_init=2)"


def test_large_problems_are_clustered_in_mini_batches_and_the_report_says_so(monkeypatch):
    x = torch.eye(3).repeat_interleave(5, dim=0) + 0.01 * whole(15, 3)
    for limit, method in ((15 * 3 * 3, "KMeans"), (15 * 3 * 3 - 1, "MiniBatchKMeans")):  # rows, clusters, dimensions
        monkeypatch.setattr("rankgrad.evaluation.clustering.KMEANS_LIMIT", limit)
        report = evaluate(x, torch.arange(3).repeat_interleave(5), metrics=["NMI"], intervals=0)
        assert report.settings["clusters"].startswith(f"{method}(") and report.values["NMI"] == pytest.approx(1)


@pytest.mark.parametrize(("classes", "noted"), [(9, True), (10, False)])
def test_intervals_from_fewer_than_ten_classes_get_a_note(classes, noted):
    report = plain(whole(40, 3), torch.arange(40) % classes, intervals=20)
    assert any("intervals come from only" in note for note in report.notes) == noted


SETTINGS = Report.shapes["settings"]  # those that a report is read by


def test_a_report_needs_the_settings_that_it_is_read_by_and_no_others():
    report = plain(whole(20, 3), torch.arange(20) % 3)
    content = json.loads(report.to_json())
    content["settings"] = {name: content["settings"][name] for name in SETTINGS}
    assert Report.from_json(json.dumps(content)).values == report.values
    for name in SETTINGS:
        fewer = {key: value for key, value in content["settings"].items() if key != name}
        with pytest.raises(ValueError, match="damaged"):
            Report.from_json(json.dumps({**content, "settings": fewer}))


def test_the_clusters_are_the_better_ones_of_two_starts(monkeypatch, capsys):
    cluster = pytest.importorskip("sklearn.cluster", reason="k-means is scikit-learn's")
    points = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    labels = np.arange(300) % 30
    monkeypatch.setattr("rankgrad.evaluation.clustering.KMEANS_SHORT", 0)
    for seed in range(3):
        drawing = Bootstrap(0, seed=seed)
        report = evaluate(points, labels, metrics=["NMI"], similarity="euclidean", progress=True, intervals=drawing)
        both = cluster.KMeans(30, n_init=2, random_state=seed).fit_predict(points)
        assert report.values["NMI"] == pytest.approx(metrics.nmi(labels, both), abs=1e-12)
    assert "k-means" in capsys.readouterr().err


def test_without_scikit_learn_the_report_says_why_nmi_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    report = evaluate(whole(10, 3), torch.arange(10) % 2, metrics=["R@1", "NMI"], intervals=0)
    assert "NMI" not in report.values and any("scikit-learn" in note for note in report.notes)


def test_all_embeddings_identical_is_one_great_tie():
    x, labels = torch.full((60, 17), 0.3), torch.arange(60) % 3
    report = evaluate(x, labels, intervals=10)
    assert report.values["AP"] == pytest.approx(19 / 59)  # every relevant item is at rank 59 of 59, 19 of them relevant
    assert report.values["mAP@R"] == report.values["R-precision"] == 0
    assert (
        report.values["P@1"] == report.values["R@1"] == pytest.approx(19 / 60)
    )  # item 0 is first for all others, item 1 for item 0
    assert report.values["AUC_hardest"] == 0.5
    assert report.counts["duplicates"] == 59


def test_perfect_embeddings_have_every_metric_at_one_and_an_interval_of_no_width():
    labels = torch.arange(12) // 3
    report = evaluate(torch.eye(4)[labels], labels, metrics=[*METRICS, "NMI"])
    for name in ("R@1", "mAP@R", "AP", "R-precision", "P@1", "MRR", "NMI", "AUC_hardest"):
        assert report.values[name] == pytest.approx(1)
    assert report.intervals["AP"] == (1, 1) and "NMI" not in report.intervals


def test_queries_without_relevant_items_are_named_and_skipped_or_counted_as_misses():
    x, labels = whole(12, 3), torch.tensor([0] * 5 + [1] * 5 + [7, 8])
    skip, miss = plain(x, labels), plain(x, labels, without_relevant="zero")
    assert skip.without_relevant.tolist() == miss.without_relevant.tolist() == [10, 11]
    assert miss.values["AP"] == pytest.approx(skip.values["AP"] * 10 / 12)
    assert "2 queries have no relevant item and are left out of all means: rows 10, 11." in str(skip)
    assert "2 queries have no relevant item and count 0: rows 10, 11." in str(miss)
    assert skip.per_class[2] == {"class": 7, "name": "7", "queries": 1, "counted": 0} | dict.fromkeys(skip.per_query)
    assert miss.per_class[2]["AP"] == 0
    assert all(np.isfinite(value).all() for value in skip.per_query.values())


def test_tables_are_means_over_the_queries_of_a_class_and_of_a_super_label():
    x, labels = whole(30, 3), torch.arange(30) % 5 + 10
    report = plain(
        x,
        labels,
        super_labels=labels // 13,
        class_names={c: f"class {c}" for c in range(10, 15)},
        super_names=["few", "many"],
    )
    assert [row["name"] for row in report.per_class] == [f"class {c}" for c in range(10, 15)]
    for row in report.per_class:
        mine = (labels == row["class"]).numpy()
        assert row["queries"] == row["counted"] == 6
        assert row["AP"] == pytest.approx(report.per_query["AP"][mine].mean())
    assert [(row["name"], row["queries"]) for row in report.per_super_label] == [("few", 18), ("many", 12)]
    worst = report.worst_classes(2, metric="R@1")
    assert len(worst) == 2 and worst[0]["R@1"] <= worst[1]["R@1"] <= min(
        row["R@1"] for row in report.per_class if row not in worst
    )
    with pytest.raises(ValueError, match="no per-class metric 'map'; known: R@1"):
        report.worst_classes(metric="map")
    with pytest.raises(ValueError, match="n is a number of classes and must be an integer >= 0; got -1"):
        report.worst_classes(-1)


def test_the_bootstrap_is_seeded_brackets_the_mean_and_is_wider_over_classes():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) // 20
    spread = torch.linspace(0.2, 3, 20)[labels, None]  # classes differ: their queries are not independent
    x = torch.randn(20, 8, generator=generator)[labels] + spread * torch.randn(400, 8, generator=generator)
    one, two = evaluate(x, labels), evaluate(x, labels)
    assert one.intervals == two.intervals
    assert one.intervals != evaluate(x, labels, intervals=Bootstrap(seed=1)).intervals
    query = evaluate(x, labels, intervals=Bootstrap(by="query"))
    for name, (low, high) in one.intervals.items():
        assert low < one.values[name] < high
        assert high - low > query.intervals[name][1] - query.intervals[name][0]
    # for the mean of independent values the percentile interval is the normal one
    value = query.per_query["AP"]
    low, high = query.intervals["AP"]
    assert high - low == pytest.approx(2 * 1.96 * value.std() / np.sqrt(len(value)), rel=0.1)
    narrow = evaluate(x, labels, intervals=Bootstrap(confidence=0.5)).intervals["AP"]
    assert narrow[1] - narrow[0] < one.intervals["AP"][1] - one.intervals["AP"][0]


def test_few_classes_are_named_as_a_weak_base_of_the_intervals():
    report = plain(whole(12, 3), torch.arange(12) % 3, intervals=10)
    assert "The intervals come from only 3 classes." in report.notes


def test_report_round_trips_through_json_text_and_file_exactly(tmp_path):
    x, labels = (
        torch.randn(30, 5, generator=torch.Generator().manual_seed(0)),
        torch.tensor([9] + [0, 1, 2] * 9 + [1, 2]),
    )
    report = evaluate(x, labels, super_labels=labels // 2, intervals=50)
    path = tmp_path / "report.json"
    text = report.to_json(path)
    for again in (Report.from_json(text), Report.from_json(path), Report.from_json(str(path))):
        assert again == report
        assert again.values == report.values and again.intervals == report.intervals
        assert all(again.per_query[name].tobytes() == value.tobytes() for name, value in report.per_query.items())
        assert again.without_relevant.tolist() == [0] and str(again) == str(report)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    with pytest.raises(ValueError, match="not an evaluation report"):
        Report.from_json('{"values": {}}')


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_arrays_and_tensors_of_any_precision_are_taken_and_left_as_they_are(kind):
    x = whole(20, 3).numpy().astype(kind)
    labels = (np.arange(20) % 3).astype("int16")
    want = plain(whole(20, 3), torch.arange(20) % 3)
    x.flags.writeable = False
    for given in (x, torch.tensor(x), torch.tensor(x).requires_grad_()):
        report = plain(given, labels)
        assert report.per_query["AP"].tolist() == want.per_query["AP"].tolist()
        assert report.settings["precision"] == ("float64" if kind == "float64" else "float32")


def test_cosine_does_not_see_the_length_of_a_row_however_large_or_small():
    x, labels = whole(20, 4, seed=2), torch.arange(20) % 3
    x[(x == 0).all(1)] = 1
    scale = torch.tensor([1.0, 2.0**-126, 2.0**100, 2.0**-60, 2.0**60]).repeat(4)[:, None]
    stretched = unit_rows(x * scale)
    torch.testing.assert_close(stretched, unit_rows(x))
    torch.testing.assert_close(stretched.norm(dim=1), torch.ones(20))
    assert evaluate(x * scale, labels, intervals=0).counts["zero_vectors"] == 0


def test_zero_vectors_score_zero_are_counted_and_named():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    report = evaluate(x, torch.tensor([0, 0, 0, 1, 1]), intervals=0)
    assert report.counts["zero_vectors"] == 1
    assert "1 zero vectors in embeddings have score 0 with every item: rows 2." in report.notes
    assert report.values["R@1"] == pytest.approx(3 / 5)  # 0 and 1 find each other, 2 ties and takes 0; 3 and 4 miss


def test_a_tie_counts_as_above_for_average_precision_and_by_index_for_a_hit():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    report = evaluate(x, torch.tensor([0, 0, 1]), intervals=0)
    assert report.values["R@1"] == 1 and report.values["MRR"] == 1
    assert report.values["R-precision"] == 0 and report.values["AP"] == 0.5


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"embeddings": torch.tensor([[1.0], [float("nan")]] + [[1.0]] * 4)},
            ValueError,
            "embeddings must be finite; row 1",
        ),
        ({"embeddings": torch.tensor([[1.0], [float("-inf")]] + [[1.0]] * 4)}, ValueError, "row 1 .*-inf"),
        ({"embeddings": torch.zeros(0, 3), "labels": torch.zeros(0, dtype=torch.long)}, ValueError, "non-empty"),
        ({"embeddings": torch.zeros(6)}, ValueError, "matrix"),
        ({"embeddings": torch.zeros(6, 2, dtype=torch.long)}, TypeError, "floating-point"),
        ({"embeddings": np.array([["a"]] * 6)}, TypeError, "embeddings must be numbers"),
        ({"labels": torch.zeros(5, dtype=torch.long)}, ValueError, "one row per embedding, 6; got 5"),
        ({"labels": torch.zeros(6)}, TypeError, "integers"),
        (
            {"labels": [1.5] * 6},
            TypeError,
            "labels must be integers, strings or multi-hot bool; got float64.*numpy.unique",
        ),
        ({"labels": torch.zeros(6, dtype=torch.bool)}, ValueError, "multi-hot bool"),
        ({"labels": torch.zeros(6, dtype=torch.long)}, ValueError, "only one class"),
        ({"labels": torch.arange(6)}, ValueError, "none of the 6 queries has a relevant item"),
        ({"ids": [1, 2, 3, 4, 5, 1]}, ValueError, "ids must be distinct; .*1.* is in rows .0, 5."),
        ({"ids": [1, 2]}, ValueError, "ids must hold 6 ids"),
        ({"ref_ids": [1, 2]}, ValueError, "ref_ids without ref_embeddings"),
        ({"ref_embeddings": torch.ones(3, 2)}, ValueError, "only one of ref_embeddings"),
        ({"ref_embeddings": torch.ones(3, 5), "ref_labels": torch.arange(3)}, ValueError, "same width"),
        (
            {"ref_embeddings": torch.ones(3, 2), "ref_labels": torch.ones(3, 2) > 0},
            ValueError,
            "same (dtype and )?columns",
        ),
        (
            {"ref_embeddings": torch.ones(3, 2), "ref_labels": torch.arange(4)},
            ValueError,
            "ref_labels must have one row",
        ),
        ({"super_labels": torch.arange(4)}, ValueError, "super_labels must have one row"),
        ({"super_labels": torch.ones(6, 2, dtype=torch.long)}, ValueError, "one per query"),
        ({"class_names": ["only one"]}, ValueError, "no name for class 1: got 1 names"),
        ({"super_labels": torch.arange(6), "super_names": {0: "zero"}}, ValueError, "no name for super_label 1"),
        ({"metrics": ()}, ValueError, "metrics must be a list of at least one"),
        ({"metrics": ("R@0",)}, ValueError, "unknown metric 'R@0'"),
        ({"intervals": -1}, ValueError, "number of resamples"),
    ],
)
def test_bad_input_is_refused_with_what_was_needed(change, error, message):
    of_protocol = {name: change[name] for name in ("ids", "ref_ids") if name in change}
    arguments = {"embeddings": whole(6, 2), "labels": torch.arange(6) % 2, "protocol": Protocol(**of_protocol)}
    with pytest.raises(error, match=message):
        evaluate(**(arguments | {name: value for name, value in change.items() if name not in of_protocol}))


def test_settings_that_cannot_be_are_refused_where_they_are_made():
    for make, message in (
        (lambda: Bootstrap(confidence=95), "between 0 and 1"),
        (lambda: Bootstrap(by="image"), "by must be 'class' or 'query'; got 'image'"),
        (lambda: Bootstrap(-1), "resamples and must be an integer >= 0; got -1"),
        (lambda: Protocol(without_relevant="drop"), "without_relevant must be"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


# ------------------------------------------------------------------------------------------------------ labels, names


def test_labels_may_be_strings_lists_and_integers_of_any_size():
    x, labels = whole(24, 3), torch.arange(24) % 3
    want = plain(x, labels)
    words = [["ant", "bee", "cat"][c] for c in labels.tolist()]
    huge = [[-(2**62), 7, 2**63 - 1][c] for c in labels.tolist()]
    for given in (labels.tolist(), words, np.array(words), np.array(words, dtype=object), huge, labels.to(torch.int8)):
        assert plain(x, given).values == want.values
    report = plain(x, words, super_labels=[(word[0] > "a" and "b to z") or "a" for word in words], intervals=10)
    assert [(row["class"], row["name"]) for row in report.per_class] == [(w, w) for w in ("ant", "bee", "cat")]
    assert [(row["super_label"], row["queries"]) for row in report.per_super_label] == [("a", 8), ("b to z", 16)]
    assert [row["class"] for row in plain(x, huge).per_class] == [-(2**62), 7, 2**63 - 1]
    assert Report.from_json(report.to_json()) == report
    named = plain(x, words, class_names={"ant": "Ameise", "bee": "Biene", "cat": "Katze"})
    assert [row["name"] for row in named.per_class] == ["Ameise", "Biene", "Katze"]
    with pytest.raises(ValueError, match=".ant. is a string"):
        plain(x, words, class_names=["a", "b", "c"])


def test_hierarchies_may_be_strings_too():
    x = whole(24, 3)
    coarse, fine = torch.arange(24) % 2, torch.arange(24) // 2 % 3
    words = [[["north", "south"][c], ["ant", "bee", "cat"][f]] for c, f in zip(coarse, fine, strict=True)]
    report, want = plain(x, words), plain(x, torch.stack([coarse, fine], dim=1))
    assert report.values == want.values and report.levels == want.levels
    assert [row["super_label"] for row in report.per_super_label] == ["north", "south"]
    assert [row["class"] for row in report.per_class] == ["ant", "bee", "cat"] * 2


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([1.0] * 6, TypeError, "integers, strings or multi-hot bool; got float64"),
        (["a", 1, "a", "b", "b", "b"], TypeError, "got object"),
        ([["a"], ["a", "b"]] * 3, ValueError, "rows of equal length"),
        (torch.zeros(6, 3, dtype=torch.uint8), ValueError, "uint8 .*bool for multi-hot"),
        (np.zeros((6, 3), dtype=np.uint8), ValueError, "uint8 .*bool for multi-hot"),
        (
            np.array([2**63] * 6, dtype=np.uint64),
            ValueError,
            "must fit into signed 64-bit integers; got 9223372036854775808",
        ),
    ],
)
def test_labels_that_are_none_are_refused(labels, error, message):
    with pytest.raises(error, match=message):
        plain(whole(6, 2), labels)


def test_labels_of_both_sides_must_be_of_one_kind():
    with pytest.raises(TypeError, match="strings .*numbers"):
        plain(whole(6, 2), ["a", "b"] * 3, ref_embeddings=whole(4, 2), ref_labels=[0, 1, 0, 1])
    with pytest.raises(ValueError, match="ids and ref_ids"):
        plain(
            whole(6, 2),
            [0, 1] * 3,
            ref_embeddings=whole(4, 2),
            ref_labels=[0, 1, 0, 1],
            ids=range(6),
            ref_ids=list("abcd"),
        )


# ---------------------------------------------------------------------------------------------------- more metrics

EXTRA = {
    "P@5": lambda s, g: reference.precision_at_k(s, g, 5),
    "Recall@5": lambda s, g: reference.recall_at_k(s, g, 5),
    "refined@2": lambda s, g: reference.refined_recall(s, g, 2),
    "AP@5": lambda s, g: reference.ap_at_k(s, g, 5, "relevant"),
    "MRR@2": lambda s, g: reference.reciprocal_rank(s, g, 2),
    "NDCG@5": lambda s, g: reference.ndcg(s, g, 5),
    "fall-out@5": lambda s, g: reference.fall_out(s, g, 5),
    "R@3": lambda s, g: reference.hit_at_k(s, g, 3),
}


def test_more_metrics_by_name_equal_plain_loops_and_have_intervals_and_tables():
    x, labels = whole(40, 3), torch.arange(40) % 5
    report = plain(x, labels, metrics=[*METRICS, *list(EXTRA)], intervals=10)
    scores, relevant, exists = x @ x.T, labels[:, None] == labels, ~torch.eye(40, dtype=torch.bool)
    for name, by_hand in EXTRA.items():
        wanted = [by_hand(s, g) for s, g in reference.lists(scores, relevant, exists)]
        np.testing.assert_allclose(report.per_query[name], wanted, atol=1e-12)
        assert name in report.intervals and all(name in row for row in report.per_class)
        assert measures.meaning(name)
    assert report.settings["metrics"] == [*METRICS, *EXTRA]
    assert Report.from_json(report.to_json()) == report


@pytest.mark.parametrize("block", [None, 3])
def test_fnmr_of_a_report_is_that_of_all_pairs(block):
    x, labels = whole(40, 3, values=9), torch.arange(40) % 5
    scores, relevant, exists = x @ x.T, labels[:, None] == labels, ~torch.eye(40, dtype=torch.bool)
    for rate in (0, 0.001, 0.1, 0.5, 1):
        report = plain(x, labels, block=block, metrics=[*METRICS, *[f"FNMR@FMR={rate}"]])
        wanted = metrics.fnmr_at_fmr(scores, relevant, exists, fmr=rate).item()
        assert report.values[f"FNMR@FMR={rate}"] == pytest.approx(wanted)
    close = {"FNMR@FMR=0.2500001": 0.2500001, "FNMR@FMR=0.2500002": 0.2500002, "FNMR@FMR=1e-1": 0.1}
    report = plain(x, labels, block=block, metrics=[*METRICS, *list(close)])  # each under the name that was asked for
    for name, rate in close.items():
        assert report.values[name] == pytest.approx(metrics.fnmr_at_fmr(scores, relevant, exists, fmr=rate).item())
    cosine = evaluate(x, labels, block=block, metrics=[*METRICS, "FNMR@FMR=0.1"], intervals=0)
    unit = unit_rows(x.double())
    wanted = metrics.fnmr_at_fmr((unit @ unit.T).round(decimals=9), relevant, exists, fmr=0.1).item()
    assert cosine.values["FNMR@FMR=0.1"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["AP@"], "unknown metric 'AP@'; did you mean 'AP'?"),
        (["map@10"], "unknown metric 'map@10'; did you mean 'AP@10'?"),
        (["P@0"], "unknown metric 'P@0'"),
        (["P@" + "9" * 30], "'P@9{30}' ends in a list length and must be an integer <= 9223372036854775807; got 9{30}"),
        (["AP@R"], "unknown metric 'AP@R'; did you mean 'mAP@R'?"),
        (["FNMR@FMR=2"], "'FNMR@FMR=2' must end in a share of false matches"),
        (["FNMR@FMR=x"], "'FNMR@FMR=x' must end in a share of false matches"),
        ("AP@10", "metrics must be a list.*'AP@10'.; got 'AP@10'"),
        ([3], "metrics must be a list.*got .3."),
        (None, "metrics must be a list.*got None"),
    ],
)
def test_a_metric_that_is_not_known_is_answered_with_those_that_are(metrics, message):
    with pytest.raises(ValueError, match=message):
        plain(whole(6, 2), torch.arange(6) % 2, metrics=metrics)


@pytest.mark.parametrize("values", [2, 30])  # 2: many ties
def test_h_ap_and_h_ndcg_of_a_hierarchy_are_those_of_its_gains(values):
    x, given = whole(40, 3, values=values), torch.Generator().manual_seed(0)
    labels = torch.randint(3, (40, 3), generator=given)
    report = plain(x, labels, intervals=10)
    same = (labels[:, None] == labels).cumprod(2).sum(2) / 3
    lists = reference.lists(x @ x.T, same, ~torch.eye(40, dtype=torch.bool))
    counted = [query for query in range(40) if query not in report.without_relevant]
    loss = reference.hap_loss(reference.heaviside)
    slow = {"H-AP": lambda s, g: 1 - loss(s, g), "H-NDCG": lambda s, g: ndcg_score([g], [s])}
    for name, by_hand in slow.items():
        wanted = [by_hand(s, g) for s, g in lists]
        np.testing.assert_allclose(report.per_query[name], wanted, atol=1e-12)
        assert report.values[name] == pytest.approx(np.mean([wanted[query] for query in counted]))
        assert name in report.intervals and all(name in row for row in report.per_class)
    assert "H-AP" not in plain(x, labels, groups=torch.arange(40)).values  # each level's gallery is another
    assert len(plain(x, labels[:, :1]).levels) == 0


def test_every_number_of_a_report_has_a_meaning():
    two = torch.stack([torch.arange(30) % 3, torch.arange(30) % 6], dim=1)
    report = evaluate(whole(30, 3), two, metrics=[*METRICS, "FNMR@FMR=0.1", "fall-out@3"], intervals=0)
    assert all(measures.meaning(name) for name in report.values) and not measures.meaning("something else")


def test_ami_is_reported_beside_nmi():
    labels = torch.arange(12) // 3
    report = evaluate(torch.eye(4)[labels], labels, metrics=["AMI", "NMI"])
    assert report.values == {"AMI": 1, "NMI": 1} and not report.intervals
    chance = evaluate(
        torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 20, metrics=["AMI", "NMI"]
    )
    assert abs(chance.values["AMI"]) < 0.2 < 0.5 < chance.values["NMI"]


# --------------------------------------------------------------------------------------------------------- weights


def test_weights_make_weighted_means_everywhere_and_equal_ones_change_nothing():
    x, labels = whole(30, 3), torch.arange(30) % 5
    weights = torch.rand(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[labels == 4] = 0
    report, before = (plain(x, labels, super_labels=labels // 3, **more) for more in ({"weights": weights}, {}))
    w, ap = weights.numpy(), before.per_query["AP"]
    assert report.values["AP"] == pytest.approx((w * ap).sum() / w.sum())
    assert report.per_query["AP"].tolist() == ap.tolist() and report.counts == before.counts
    for row in report.per_class[:4]:
        mine = labels.numpy() == row["class"]
        assert row["AP"] == pytest.approx((w * ap)[mine].sum() / w[mine].sum())
    assert report.per_class[4]["AP"] is None and report.per_class[4]["counted"] == 6
    assert report.settings["weights"] and not before.settings["weights"]
    same = plain(x, labels, super_labels=labels // 3, weights=np.full(30, 3), intervals=20)
    assert same.values == pytest.approx(plain(x, labels, intervals=20).values)
    assert same.intervals["AP"] == pytest.approx(plain(x, labels, intervals=20).intervals["AP"])


def test_weights_count_at_the_coarser_levels_too_where_a_query_may_have_no_finer_answer():
    x, labels = whole(9, 3), torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2], [1, 3], [1, 4], [1, 4]])
    weights = np.arange(1.0, 10.0)
    coarse = plain(x, labels[:, 0], weights=weights).values
    assert plain(x, labels, weights=weights).levels[0]["AP"] == pytest.approx(coarse["AP"])


def test_a_weight_is_a_number_of_copies_of_a_query_in_the_bootstrap_too():
    x, labels = whole(12, 3), torch.arange(12) % 4
    gallery, ref_labels = whole(30, 3, seed=1), torch.arange(30) % 4
    times = torch.tensor([1, 3, 2, 1, 0, 1, 1, 2, 1, 0, 1, 1])
    against = {"ref_embeddings": gallery, "ref_labels": ref_labels, "intervals": 50}
    weighted = plain(x, labels, weights=times, **against)
    copied = plain(x.repeat_interleave(times, 0), labels.repeat_interleave(times), **against)
    for name in weighted.intervals:
        assert weighted.values[name] == pytest.approx(copied.values[name])
        assert weighted.intervals[name] == pytest.approx(copied.intervals[name])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 5, "weights must be .query., 6 numbers; got shape .5,."),
        ([1, 1, -1, 1, 1, 1], "the weight of query 2 is -1.0"),
        ([0.0] * 6, "weights must be > 0 for at least one query"),
        (["a"] * 6, "weights must be numbers"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plain(whole(6, 2), torch.arange(6) % 2, weights=weights)


# --------------------------------------------------------------------------------- protocols: cameras, lists, distances


def test_the_protocol_of_re_identification_equals_plain_loops():
    queries, gallery = whole(9, 3, seed=1), whole(36, 3)
    person, ref_person = torch.arange(9) % 3, torch.arange(36) % 4
    camera, ref_camera = torch.arange(9) % 2, torch.arange(36) // 4 % 3
    report = plain(
        queries,
        person,
        ref_embeddings=gallery,
        ref_labels=ref_person,
        groups=[f"camera {c}" for c in camera.tolist()],
        ref_groups=[f"camera {c}" for c in ref_camera.tolist()],
    )
    relevant = person[:, None] == ref_person
    exists = ~(relevant & (camera[:, None] == ref_camera))
    for q, (s, g) in enumerate(reference.lists(queries @ gallery.T, relevant, exists)):
        wanted = slow_metrics(s, [gain > 0 for gain in g], -1, (1, 2, 4, 8))
        assert {name: report.per_query[name][q] for name in wanted} == pytest.approx(wanted)
    assert report.settings["groups"] and not report.settings["ignore"]


def test_items_on_the_list_of_a_query_are_not_retrieved_for_it():
    x, labels = whole(20, 3), torch.arange(20) % 3
    names = [f"{i}.png" for i in range(20)]
    ignore = [[names[(q + 3) % 20], "elsewhere.png"] if q % 2 else [] for q in range(20)]
    report = plain(x, labels, ids=names, ignore=ignore)
    exists = ~torch.eye(20, dtype=torch.bool)
    for q in range(1, 20, 2):
        exists[q, (q + 3) % 20] = False
    for q, (s, g) in enumerate(reference.lists(x @ x.T, labels[:, None] == labels, exists)):
        wanted = slow_metrics(s, [gain > 0 for gain in g], -1, (1, 2, 4, 8))
        assert {name: report.per_query[name][q] for name in wanted} == pytest.approx(wanted)
    with pytest.raises(ValueError, match="ignore .*20; got 19"):
        plain(x, labels, ids=names, ignore=ignore[1:])
    with pytest.raises(ValueError, match="ignore.1. and the gallery's ids"):
        plain(x, labels, ids=names, ignore=[[], [3], *[[]] * 18])
    with pytest.raises(ValueError, match="ignore holds ids of items: pass ids"):
        plain(x, labels, ignore=ignore)


def test_euclidean_distance_ranks_the_embeddings_as_they_are():
    x, labels = whole(30, 3), torch.arange(30) % 4
    report = evaluate(x, labels, similarity="euclidean", intervals=0)
    distance = torch.cdist(x.double(), x.double()).square().round()
    check_against_slow(report, -distance, labels[:, None] == labels, torch.arange(30), (1, 2, 4, 8))
    assert report.settings["similarity"] == "euclidean" and "euclidean" in str(report)
    assert "zero vectors" not in str(report)
    unit = unit_rows(torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    by_distance = evaluate(unit, labels, similarity="euclidean", intervals=0)
    assert by_distance.values["AP"] == pytest.approx(evaluate(unit, labels, intervals=0).values["AP"])


def test_a_similarity_that_is_not_known_is_refused():
    x, labels = whole(30, 3), torch.arange(30) % 4
    with pytest.raises(ValueError, match="'cosine', .* 'euclidean'; got 'l2'"):
        plain(x, labels, similarity="l2")


# ----------------------------------------------------------------------------------------------- a query in the gallery


@pytest.mark.parametrize("noise", [0.0, 1e-7])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_queries_that_stand_in_the_gallery_under_no_name_are_noticed(noise, similarity):
    generator = torch.Generator().manual_seed(0)
    gallery, ref_labels = torch.randn(40, 8, generator=generator), torch.arange(40) % 5
    asked = torch.tensor([7, 3, 21])
    again = gallery[asked] * (1 + noise * torch.randn(3, 8, generator=generator))
    queries = torch.cat([torch.randn(2, 8, generator=generator), again])
    labels = torch.cat([torch.tensor([0, 1]), ref_labels[asked]])
    against = {"ref_embeddings": gallery, "ref_labels": ref_labels, "similarity": similarity}
    settings = {"intervals": 0} | against
    report = evaluate(queries, labels, **settings)
    (note,) = report.notes
    assert note.startswith("3 queries have a relevant item with the same embedding in the gallery: rows 2, 3, 4.")
    assert "pass ids and ref_ids" in note
    names = [100, 101, *asked.tolist()]
    assert not evaluate(queries, labels, protocol=Protocol(ids=names, ref_ids=range(40)), **settings).notes
    assert not evaluate(queries[:2], labels[:2], **settings).notes


FEW_CLASSES = """
import resource, torch
from rankgrad.evaluation import evaluate
torch.set_num_threads(1)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
x, labels = torch.randn(4_000, 8, generator=torch.Generator().manual_seed(0)), torch.arange(4_000) % 2
evaluate(x[:200], labels[:200], intervals=0)
start = peak()
evaluate(x, labels, intervals=0)
print(peak() - start)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs elsewhere")
def test_thousands_of_relevant_items_per_query_keep_to_the_budget():
    answer = subprocess.run([sys.executable, "-c", FEW_CLASSES], capture_output=True, text=True, check=True)
    assert float(answer.stdout) < 256  # MiB, as `search.MEMORY` has it


def test_a_query_without_an_irrelevant_item_has_no_roc_auc():
    """Every item is relevant for the last query. All rankings are perfect."""
    labels = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]]).bool()
    x = torch.tensor([[1.0, 0], [1, 0.01], [0, 1], [0.01, 1], [1, 1]])
    report = evaluate(x, labels, intervals=100)
    assert report.values["AP"] == report.values["ROC AUC"] == 1
    assert report.intervals["ROC AUC"] == (1, 1)
    assert report.per_query["ROC AUC"].tolist() == [1, 1, 1, 1, 0]
    assert [row["ROC AUC"] for row in report.per_class] == [1, 1]
    # at the coarse level all items are of one class
    levels = evaluate(x[:4], [[0, 0], [0, 0], [0, 1], [0, 1]], intervals=0).levels
    assert levels[0]["AP"] == 1 and "ROC AUC" not in levels[0]


@pytest.mark.parametrize("absent", [-7, 99])
def test_ids_that_the_gallery_does_not_have_exclude_nothing(absent):
    x, labels = whole(6, 3), torch.arange(6) % 2
    gallery = {"ref_embeddings": whole(8, 3, seed=1), "ref_labels": torch.arange(8) % 2, "ref_ids": torch.arange(8)}
    ids = torch.arange(20, 26)
    ids[3] = absent
    want = plain(x, labels, ids=torch.arange(20, 26), **gallery)
    ignore = [[absent]] * 6
    for more in ({}, {"ignore": ignore}):
        report = plain(x, labels, ids=ids, **gallery, **more)
        assert report.per_query["AP"].tolist() == want.per_query["AP"].tolist()
