"""The estimators are scikit-learn's: its checks pass, and its searches, pipelines and folds take them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import sklearn  # after the check that it is there
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.metrics import average_precision_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankgrad.adapters.sklearn import EVERY, PATIENCE, RankClassifier, Ranker, _batches, _Best, scorer
from rankgrad.losses import (
    LOSSES,
    AdaptiveROADMAPLoss,
    InfoNCELoss,
    LambdaLoss,
    RankLoss,
    ROCAUCLoss,
    SmoothAPLoss,
)
from rankgrad.metrics import average_precision
from rankgrad.ranks import exact_ranks

SMALL = {"hidden": (16,), "steps": 40, "learning_rate": 0.03, "random_state": 0}


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def rare(count: int = 1000, seed: int = 0):
    """(rows, hits): about one in fifty."""
    rows = np.random.default_rng(seed).normal(size=(count, 4))
    return rows, (rows[:, 0] + rows[:, 1] > 2.9).astype(int)


def queries(seed: int = 0):
    """(rows, grades, ids), the rows in any order."""
    g = np.random.default_rng(seed)
    rows = g.normal(size=(600, 4))
    grades = np.digitize(rows[:, 0] + 0.3 * g.normal(size=600), [0.5, 1.5])
    return rows, grades, g.permutation(np.repeat(np.arange(40), 15))


NOT_REPEATED = "a loss of ranks takes no weights, and a network on batches differs where a row is repeated"
UNMET = {f"check_sample_weight_equivalence_on_{kind}_data": NOT_REPEATED for kind in ("dense", "sparse")}
UNMET["check_sample_weights_not_overwritten"] = "a loss of ranks refuses weights that differ"


@parametrize_with_checks(
    [RankClassifier(**SMALL), Ranker(**{**SMALL, "steps": 10})], expected_failed_checks=lambda estimator: UNMET
)
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_classifier_of_rare_rows_ranks_new_ones_and_marks_as_many_as_are_positive():
    (rows, hits), (fresh, wanted) = rare(), rare(seed=1)
    model = RankClassifier(**SMALL).fit(rows, hits)
    assert model.score(fresh, wanted) == pytest.approx(average_precision_score(wanted, model.decision_function(fresh)))
    assert model.score(fresh, wanted) > 0.8
    assert model.predict(rows).sum() == hits.sum()


@pytest.mark.parametrize("model", [RankClassifier(**SMALL), Ranker(**SMALL)])
def test_a_data_frame_is_trained_on_and_scored_without_a_warning(model):
    rows, hits = rare()
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=["a", "b", "c", "d"]).assign(hit=hits.astype(float))
    inputs = frame[["a", "b", "c", "d"]]
    found = model.fit(inputs, frame["hit"]).predict(inputs)  # warnings are errors here
    np.testing.assert_allclose(found, clone(model).fit(rows, hits).predict(rows), rtol=1e-4)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_row_without_its_query_is_an_error_and_not_in_a_query_of_its_own(missing):
    rows, grades, ids = queries()
    with pytest.raises(ValueError, match="query of row 7 is missing"):
        Ranker(**SMALL).fit(rows, grades, query=[*ids[:7].tolist(), missing, *ids[8:].tolist()])


def test_classes_may_be_strings_and_the_second_is_positive():
    rows, hits = rare()
    words = np.where(hits == 1, "fraud", "all well")
    numbers, strings = RankClassifier(**SMALL).fit(rows, hits), RankClassifier(**SMALL).fit(rows, words)
    np.testing.assert_array_equal(numbers.decision_function(rows), strings.decision_function(rows))
    assert list(strings.classes_) == ["all well", "fraud"] and set(strings.predict(rows)) == set(words)
    assert strings.score(rows, words) == numbers.score(rows, hits) == scorer("AP")(strings, rows, words)


def test_the_same_seed_gives_the_same_model_and_the_random_numbers_of_torch_stay_where_they_were():
    rows, hits = rare()
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    one, other = (RankClassifier(**SMALL).fit(rows, hits).decision_function(rows) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    torch.testing.assert_close(torch.rand(2), wanted, rtol=0, atol=0)
    np.testing.assert_array_equal(
        one, pickle.loads(pickle.dumps(RankClassifier(**SMALL).fit(rows, hits))).decision_function(rows)
    )


def test_a_search_compares_losses_by_our_metric():
    rows, hits = rare()
    losses = [InfoNCELoss(tau=0.1), SmoothAPLoss(tau=1.0)]
    pipeline = make_pipeline(QuantileTransformer(n_quantiles=50), RankClassifier(**SMALL))
    search = GridSearchCV(pipeline, {"rankclassifier__loss": losses}, scoring=scorer("P@10"), cv=StratifiedKFold(2))
    search.fit(rows, hits)
    assert search.best_score_ > 0.3 and search.best_params_["rankclassifier__loss"] in losses


def test_training_does_not_move_the_loss_that_was_given():
    loss, (rows, hits) = AdaptiveROADMAPLoss(), rare(200)
    before = copy.deepcopy(loss.state_dict())
    RankClassifier(loss, steps=2).fit(rows, hits)
    torch.testing.assert_close(loss.state_dict(), before, equal_nan=True)


def test_our_scorers_have_the_numbers_of_scikit_learn():
    rows, hits = rare()
    settings = {"scoring": {"ours": scorer("AP"), "theirs": "average_precision"}, "cv": StratifiedKFold(2)}
    found = cross_validate(RankClassifier(**SMALL), rows, hits, **settings)
    np.testing.assert_allclose(found["test_ours"], found["test_theirs"])


def test_a_ranker_is_judged_by_queries_that_scikit_learn_hands_on(routing):
    rows, grades, ids = queries()
    model = Ranker(LambdaLoss(k=10), **SMALL).set_fit_request(query=True).set_score_request(query=True)
    split, by = GroupKFold(2), {"query": ids, "groups": ids}
    found = cross_val_score(clone(model), rows, grades, cv=split, params=by)
    again = cross_val_score(
        model, rows, grades, cv=split, params=by, scoring=scorer("NDCG@10").set_score_request(query=True)
    )
    np.testing.assert_allclose(found, again)
    assert found.min() > 0.8
    search = GridSearchCV(model, {"hidden": [(), (8,)]}, cv=split, scoring=scorer("MRR").set_score_request(query=True))
    assert search.fit(rows, grades, query=ids, groups=ids).best_score_ > 0.8


def test_ids_of_queries_are_strings_or_numbers_in_any_order():
    rows, grades, ids = queries()
    model = Ranker(**{**SMALL, "batch": 10**6}).fit(rows, grades, query=ids)
    words = np.array([f"query {number:03d}" for number in ids])
    other = Ranker(**{**SMALL, "batch": 10**6}).fit(rows, grades, query=words)
    np.testing.assert_allclose(model.predict(rows), other.predict(rows))
    assert model.score(rows, grades, query=ids) == model.score(rows, grades, query=words)


def test_pipelines_route_queries_to_a_ranker_and_need_nothing_for_a_classifier(routing):
    rows, grades, ids = queries()
    model = Ranker(LambdaLoss(k=10), **SMALL).set_fit_request(query=True).set_score_request(query=True)
    split, by = GroupKFold(2), {"query": ids, "groups": ids}
    scaled = make_pipeline(QuantileTransformer(n_quantiles=50), model)
    by_ndcg = scorer("NDCG@10").set_score_request(query=True)
    named = cross_val_score(scaled, rows, grades, cv=split, params=by, scoring=by_ndcg)
    assert named.min() > 0.8
    if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):  # before, a pipeline's own score got no metadata
        np.testing.assert_array_equal(cross_val_score(scaled, rows, grades, cv=split, params=by), named)
    assert scaled.fit(rows, grades, query=ids).score(rows, grades, query=ids) > 0.8
    rows, hits = rare()
    assert make_pipeline(QuantileTransformer(n_quantiles=50), RankClassifier(**SMALL)).fit(rows, hits).score(rows, hits)


def test_weighted_rows_have_the_average_precision_of_scikit_learn():
    rows, hits = rare()
    model, weights = RankClassifier(**SMALL).fit(rows, hits), np.random.default_rng(0).random(len(rows))
    wanted = average_precision_score(hits, model.decision_function(rows), sample_weight=weights)
    assert model.score(rows, hits, sample_weight=weights) == pytest.approx(wanted)


def test_queries_of_fit_are_needed_by_score(routing):
    rows, grades, ids = queries()
    model = Ranker(**SMALL).fit(rows, grades, query=ids)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        model.score(rows, grades)
    assert Ranker(**SMALL).fit(rows, grades).score(rows, grades) > 0.8  # one list


def test_the_positive_class_may_be_the_first_one():
    rows, hits = rare()
    words = np.where(hits == 1, "fraud", "well")
    model = RankClassifier(**SMALL, positive="fraud").fit(rows, words)
    usual = RankClassifier(**SMALL).fit(rows, hits)
    np.testing.assert_array_equal(model.decision_function(rows), -usual.decision_function(rows))
    np.testing.assert_array_equal(model.predict(rows) == "fraud", usual.predict(rows) == 1)
    assert model.score(rows, words) == usual.score(rows, hits) == scorer("AP", positive="fraud")(model, rows, words)
    assert clone(model).positive == "fraud"


def test_a_positive_class_that_is_the_larger_one_is_warned_of_unless_it_is_named():
    rows, hits = rare(200)
    words = np.where(hits == 1, "fraud", "well")
    with pytest.warns(UserWarning, match="is well, which 1.. of 200.*positive='fraud'"):
        RankClassifier(steps=2).fit(rows, words)
    RankClassifier(steps=2, positive="well").fit(rows, words)


def test_a_fold_with_one_class_of_words_is_told():
    rows, hits = rare(200)
    words = np.where(hits == 1, "fraud", "all well")
    model = RankClassifier(steps=2).fit(rows, words)
    with pytest.raises(ValueError, match=r"\['all well'\].*AP needs two.*StratifiedKFold.*positive=LABEL"):
        scorer("AP")(model, rows[hits == 0], words[hits == 0])


def test_roc_auc_of_queries_leaves_out_lists_without_an_irrelevant_row(routing):
    rows, _, _ = queries()
    grades, ids = np.r_[1, 0, 1, 1], np.r_[0, 0, 1, 1]
    model = Ranker(steps=5).fit(rows[:4], grades, query=ids)
    wanted = float(model.predict(rows[:1])[0] > model.predict(rows[1:2])[0])
    assert scorer("ROC AUC")(model, rows[:4], grades, query=ids) == wanted
    with pytest.raises(ValueError, match="both a relevant and an irrelevant row, so ROC AUC"):
        scorer("ROC AUC")(model, rows[2:4], grades[2:], query=ids[2:])


def test_a_batch_has_a_row_of_each_kind_and_hidden_may_be_one_number():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    many = np.arange(50) > 4
    [batch] = list(_batches(torch.from_numpy(many), None, 2, 1))
    assert many[batch].tolist() == [True, False]
    assert RankClassifier(hidden=16, steps=2).fit(rows, ~many).network_[0].out_features == 16


def test_settings_may_be_integers_of_numpy_as_a_search_over_an_array_gives_them():
    rows, hits = rare(200)
    plain = RankClassifier(steps=5, batch=64, hidden=8, random_state=0).fit(rows, hits)
    model = RankClassifier(steps=np.int64(5), batch=np.int64(64), hidden=np.int64(8), random_state=0).fit(rows, hits)
    np.testing.assert_array_equal(model.decision_function(rows), plain.decision_function(rows))


@pytest.mark.parametrize("name", LOSSES)
def test_a_ranker_of_hits_takes_every_loss(name):
    rows, grades, query = queries()
    for hits in (grades > 0, (grades > 0).astype(float)):
        model = Ranker(LOSSES[name](), steps=2, hidden=4, random_state=0).fit(rows, hits, query=query)
        assert np.isfinite(model.predict(rows)).all()


def test_a_constant_column_is_not_divided_by_its_rounding_error():
    """The standard deviation of 0.1, 0.1, ... is 5e-16: a new row with 0.100001 would be 10^9 deviations away."""
    rows, hits = rare(300)
    rows = np.c_[rows, np.full(300, 0.1)]
    model = RankClassifier(**SMALL).fit(rows, hits)
    assert model.scaling_.deviation[-1] == 1
    moved = rows + [0, 0, 0, 0, 1e-6]
    np.testing.assert_allclose(model.decision_function(moved), model.decision_function(rows), atol=1e-3)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_losses_of_single_rows_are_named(loss):
    (rows, hits), (fresh, wanted) = rare(), rare(seed=1)
    assert RankClassifier(loss, **SMALL).fit(rows, hits).score(fresh, wanted) > 0.8
    rows, grades, query = queries()
    if loss == "squared_error":
        assert Ranker(loss, **SMALL).fit(rows, grades, query=query).score(rows, grades, query=query) > 0.8
    else:
        with pytest.raises(ValueError, match="y has grades"):
            Ranker(loss, **SMALL).fit(rows, grades, query=query)


def test_the_weights_of_the_best_value_are_kept():
    best, layer = _Best(), torch.nn.Linear(1, 1)
    for value in (1.0, 3.0, 2.0, 3.0):
        torch.nn.init.constant_(layer.bias, value if value < 3 else 10 * best.value)
        assert best.better(value, layer)
    best.restore(layer)
    assert layer.bias == 10  # at the first 3, the best before it was 1
    assert [best.better(0.0, layer) for _ in range(PATIENCE - 2)] == [True] * (PATIENCE - 3) + [False]


@pytest.mark.parametrize(("early", "steps"), [(True, EVERY * (PATIENCE + 1)), (False, 500)])
def test_a_training_without_a_better_held_out_value_ends(early, steps):
    rows, hits = np.ones((100, 1)), np.arange(100) % 2  # all scores are equal, so every value is
    model = RankClassifier("squared_error", hidden=(), steps=500, batch=10, early_stopping=early, random_state=0)
    assert model.fit(rows, hits).n_iter_ == steps


def test_a_ranker_of_one_list_holds_rows_out():
    rows, _hits = rare()
    model = Ranker("cross_entropy", **{**SMALL, "steps": 20}).fit(rows[:, :1], rows[:, 0] > 1)
    assert model.n_iter_ == 20 and model.score(rows[:, :1], rows[:, 0] > 1) > 0.5


def test_few_rows_of_a_class_are_all_trained_on():
    rows, hits = rare(400)
    assert hits.sum() < 50
    one, other = (RankClassifier(**SMALL, early_stopping=early).fit(rows, hits) for early in (True, False))
    np.testing.assert_array_equal(one.decision_function(rows), other.decision_function(rows))


def test_sparse_rows_are_those_of_the_dense_matrix():
    sparse = pytest.importorskip("scipy.sparse")
    rows, hits = rare(300)
    rows = np.where(np.abs(rows) < 0.5, 0, rows)
    dense = RankClassifier(**SMALL).fit(rows, hits)
    for kind in (sparse.csr_matrix, sparse.csc_array):
        found = RankClassifier(**SMALL).fit(kind(rows), hits)
        np.testing.assert_array_equal(found.decision_function(kind(rows)), dense.decision_function(rows))


@pytest.mark.parametrize("value", [1.797e308, 1e9])
def test_a_value_far_from_the_others_is_named_and_leaves_them_apart(value):
    rows, hits = rare()
    rows[::97, 0] = value
    with pytest.warns(UserWarning, match=r"^1 of 4 columns .*: x0 \(.*SimpleImputer"):
        model = RankClassifier(**SMALL).fit(rows, hits)
    assert model.score(rows, hits) > 0.7


def test_zeros_of_sparse_columns_are_no_sign_of_a_missing_value():
    sparse, (_rows, hits), g = pytest.importorskip("scipy.sparse"), rare(300), np.random.default_rng(0)
    counts = np.where(g.random((300, 60)) < 0.9, 0, g.uniform(5, [*[6.0] * 30, *[5.001] * 30], (300, 60)))
    for given in (sparse.csr_matrix(counts), counts, StandardScaler().fit_transform(counts)):
        RankClassifier(**SMALL).fit(given, hits)  # a warning would be an error


def test_one_warning_names_the_columns_of_a_data_frame_and_the_step_that_fit_takes():
    pandas, (rows, hits) = pytest.importorskip("pandas"), rare(300)
    frame = pandas.DataFrame((10 * rows).round(), columns=["age", "height", "weight", "pulse"])
    frame.loc[::9, ["age", "pulse"]] = -999
    with pytest.warns(UserWarning, match="columns") as warned:
        RankClassifier(**SMALL).fit(frame, hits)
    (told,) = (str(each.message) for each in warned)
    assert told.startswith("2 of 4 columns") and "age (34 of 300 values are -999" in told and "pulse (34 of 300" in told
    assert "empty" not in told and "SimpleImputer(missing_values=VALUE)" in told
    make_pipeline(SimpleImputer(missing_values=-999), RankClassifier(**SMALL)).fit(frame, hits)


def test_a_score_refuses_masked_weights_and_labels():
    rows, hits = rare(300)
    model = RankClassifier(**SMALL).fit(rows, hits)
    masked = np.ma.array(np.ones(300), mask=np.arange(300) < 5)
    with pytest.raises(ValueError, match="sample_weight has masked elements"):
        model.score(rows, hits, sample_weight=masked)
    with pytest.raises(ValueError, match="y has masked elements"):
        model.score(rows, np.ma.array(hits, mask=np.arange(300) < 5))
    with pytest.raises(ValueError, match="masked elements"):
        Ranker(**SMALL).fit(rows, hits).score(rows, np.ma.array(hits, mask=np.arange(300) < 5))


def test_losses_have_names_and_their_settings_are_parameters():
    rows, hits = rare(400)
    named = RankClassifier("smooth_ap", **SMALL).set_params(loss__tau=0.5).fit(rows, hits)
    given = RankClassifier(SmoothAPLoss(tau=0.5), **SMALL).fit(rows, hits)
    np.testing.assert_array_equal(named.decision_function(rows), given.decision_function(rows))
    # the loss of the default has the settings of the default, as by the command
    default, info_nce = (RankClassifier(loss, **SMALL).fit(rows, hits) for loss in (None, "info_nce"))
    np.testing.assert_array_equal(default.decision_function(rows), info_nce.decision_function(rows))
    assert RankClassifier().set_params(loss__tau=0.3).loss.tau == 0.3
    assert clone(RankClassifier(SmoothAPLoss(tau=0.5))).get_params()["loss__tau"] == 0.5
    pipeline = make_pipeline(StandardScaler(), RankClassifier("smooth_ap", **SMALL))
    search = GridSearchCV(pipeline, {"rankclassifier__loss__tau": [0.01, 1.0]}, cv=2).fit(rows, hits)
    assert search.best_estimator_[-1].loss.tau in (0.01, 1.0)
    for model, wrong in (
        (RankClassifier("smooth_ap"), "taus"),
        (RankClassifier(SmoothAPLoss()), "taus"),
        (RankClassifier("squared_error"), "tau"),
    ):
        with pytest.raises(ValueError, match=f"{wrong}|unknown loss 'squared_error'"):
            model.set_params(**{f"loss__{wrong}": 1.0})


def test_mistakes_are_told():
    rows, hits = rare(200)
    with pytest.raises(ValueError, match="1 class"):
        RankClassifier().fit(rows, np.zeros(200))
    with pytest.raises(ValueError, match="3 classes"):
        RankClassifier().fit(rows, np.arange(200) % 3)
    with pytest.raises(ValueError, match="NaN"):
        RankClassifier().fit(np.full((200, 2), np.nan), hits)
    with pytest.raises(TypeError, match="got function"):
        RankClassifier(average_precision).fit(rows, np.arange(200) % 2)
    with pytest.raises(ValueError, match="unknown loss 'ap'.* squared_error"):
        RankClassifier("ap").fit(rows, np.arange(200) % 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Ranker().fit(rows, hits, query=np.arange(5))
    with pytest.raises(ValueError, match="row 151 has -1"):
        Ranker(batch=10, steps=1).fit(rows, -1.0 * (np.arange(200) == 151), query=np.arange(200) // 10)
    for steps in (0, 1.5):
        with pytest.raises(ValueError, match=f"steps.* integer >= 1; got {steps}"):
            RankClassifier(steps=steps).fit(rows, np.arange(200) % 2)
    for batch in (0, 1):
        with pytest.raises(ValueError, match=f"batch.*{batch}"):
            RankClassifier(batch=batch).fit(rows, np.arange(200) % 2)
    with pytest.raises(ValueError, match=r"\[0, 1\].*'fraud'"):
        RankClassifier(positive="fraud").fit(rows, np.arange(200) % 2)
    with pytest.raises(ValueError, match="NDCG@10 is not weighted"):
        Ranker(steps=1).fit(rows, np.arange(200) % 2).score(rows, np.arange(200) % 2, sample_weight=np.ones(200))
    with pytest.raises(ValueError, match=r"grade|gains"):
        Ranker(ROCAUCLoss(fpr=0.05), steps=1).fit(rows, np.arange(200) % 3, query=np.arange(200) // 10)
    with pytest.raises(ValueError, match="reduction='mean'"):
        Ranker(LambdaLoss(reduction="none"), steps=1).fit(rows, hits)
    with pytest.raises(ValueError, match="no gradient"):
        RankClassifier(RankLoss(exact_ranks, metric=average_precision), steps=1).fit(rows, np.arange(200) % 2)
    for query in (None, np.arange(200) // 10):
        with pytest.raises(ValueError, match="no order can be learned"):
            Ranker(steps=1).fit(rows, np.zeros(200) if query is None else query % 2, query=query)
    with pytest.raises(ValueError, match="unknown metric 'APP'"):
        scorer("APP")  # cross_val_score would turn an error while it scores into NaN


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("kind", [RankClassifier, Ranker])
def test_losses_of_single_rows_take_weights(kind, loss):
    rows = np.zeros((40, 1))
    rows[::2] = 1
    labels = np.arange(40) % 4 == 0  # half of the rows with 1, none of those with 0
    weights = np.where(labels, 3.0, 1.0)
    own = {"loss": loss, "hidden": (), "steps": 400, "batch": 40, "learning_rate": 0.1, "weight_decay": 0.0}
    model = kind(**own, random_state=0).fit(rows, labels, sample_weight=weights)
    assert weights.tolist() == np.where(labels, 3.0, 1.0).tolist()
    score = float(model._scores(rows[:1])[0])
    wanted = {"cross_entropy": np.log(3), "squared_error": 0.75}[loss]
    assert score == pytest.approx(wanted, abs=0.02)
    alike = kind(**own, random_state=0).fit(rows, labels, sample_weight=2 * np.ones(40))
    none = kind(**own, random_state=0).fit(rows, labels)
    np.testing.assert_array_equal(alike._scores(rows), none._scores(rows))


@pytest.mark.parametrize("weights", [[-1.0] + [1.0] * 39, [0.0] * 40, [np.nan] + [1.0] * 39, [1.0] * 39])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(ValueError, match="finite and >= 0|at least one non-zero|inconsistent numbers"):
        RankClassifier("cross_entropy", steps=1).fit(
            np.arange(40.0)[:, None], np.arange(40) > 30, sample_weight=weights
        )


@pytest.mark.parametrize("kind", [RankClassifier, Ranker])
def test_losses_of_ranks_refuse_weights_that_differ(kind):
    with pytest.raises(ValueError, match="cannot weigh single rows.*cross_entropy"):
        kind(steps=1).fit(np.arange(40.0)[:, None], np.arange(40) > 30, sample_weight=np.arange(40))
