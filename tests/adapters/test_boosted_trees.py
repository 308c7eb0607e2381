"""Boosted trees follow our losses: the gradient is autograd's, the curvature positive, and groups are the lists."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is an extra")
xgboost = pytest.importorskip("xgboost", reason="xgboost is an extra")

from rankgrad import losses, metrics  # noqa: E402  # after the check that they are there
from rankgrad.adapters import lightgbm as of_lightgbm  # noqa: E402
from rankgrad.adapters import xgboost as of_xgboost  # noqa: E402
from rankgrad.adapters.boosting import BoostedRows, slopes  # noqa: E402
from rankgrad.ranks import exact_ranks  # noqa: E402

SIZES = [3, 12, 1, 9, 15] * 8
QUIET = {"verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "num_leaves": 7}
PLAIN = {"disable_default_eval_metric": True, "nthread": 1, "max_depth": 3}


def lists(seed: int = 0):
    """(rows, grades, query ids) of 40 short lists, one query after another."""
    g = np.random.default_rng(seed)
    rows = g.normal(size=(sum(SIZES), 5))
    grades = np.digitize(rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.3 * g.normal(size=len(rows)), [0.5, 1.5])
    return rows, grades, np.repeat(np.arange(len(SIZES)), SIZES)


def rare(seed: int = 0):
    """(rows, hits): one in twelve."""
    g = np.random.default_rng(seed)
    rows = g.normal(size=(600, 5))
    return rows, (rows[:, 0] + rows[:, 1] + 0.3 * g.normal(size=600) > 2).astype(int)


def exact(name, scores, grades, query):
    """The metric by the library's exact ranks, list by list."""
    read = {
        "NDCG@10": lambda found: metrics.ndcg(found, k=10),
        "AP": metrics.average_precision,
    }[name]
    relevance = torch.from_numpy(grades).double() if name == "NDCG@10" else torch.from_numpy(grades > 0)
    judge = losses.RankLoss(exact_ranks, metric=read)
    return 1 - float(judge.from_lists(torch.from_numpy(scores).double(), relevance, torch.from_numpy(query)))


def of_both(rows, labels, **groups):
    """(objective, its data set) of LightGBM and of XGBoost."""
    data = lightgbm.Dataset(rows, labels, params={"verbose": -1}, **groups).construct()
    yield of_lightgbm, data
    yield of_xgboost, xgboost.DMatrix(rows, labels, **groups)


@pytest.mark.parametrize(
    "loss", [losses.LambdaLoss(k=10), losses.SupNDCGLoss(tau=1.0, rho=1.0, delta=5.0), losses.ListNetLoss()]
)
def test_the_gradient_is_that_of_the_loss_up_to_one_factor_and_the_curvature_is_positive(loss):
    rows, grades, query = lists()
    scores = torch.randn(len(rows), generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss.from_lists(scores, torch.from_numpy(grades).float(), torch.from_numpy(query)).backward()
    for module, data in of_both(rows, grades, group=SIZES):
        gradient, curvature = module.objective(loss)(scores.detach().numpy(), data)
        assert (curvature > 0).all() and gradient.shape == curvature.shape == (len(rows),)
        factor = np.linalg.norm(gradient) / np.linalg.norm(scores.grad)
        np.testing.assert_allclose(gradient, factor * scores.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_every_loss_gives_finite_slopes_of_hits_in_one_list(name):
    rows, hits = rare()
    loss = losses.LOSSES[name]()
    for module, data in of_both(rows[:60], hits[:60]):
        gradient, curvature = module.objective(loss, one_list=True)(np.linspace(-1, 1, 60), data)
        assert np.isfinite(gradient).all() and np.isfinite(curvature).all() and (curvature > 0).all()


@pytest.mark.filterwarnings("error")
def test_lists_in_the_right_order_have_no_gradient_and_still_a_positive_curvature():
    rows, grades, _ = lists()
    for module, data in of_both(rows, grades, group=SIZES):
        loss = losses.SmoothAPLoss(tau=1e-3)
        gradient, curvature = module.objective(loss)(10.0 * grades, data)
        assert not gradient.any() and (curvature > 0).all()


def test_no_gradient_of_lists_out_of_order_is_a_warning_and_a_larger_lambda_helps():
    rows, hits = np.zeros((4000, 1)), np.tile([0] * 9 + [1], 400)
    for module, data in of_both(rows, hits, group=[10] * 400):
        with pytest.warns(UserWarning, match=r"RaMBORecallLoss.* no gradient .*larger lambda_"):
            gradient, _ = module.objective(losses.RaMBORecallLoss())(np.zeros(4000), data)
        assert not gradient.any()
        gradient, _ = module.objective(losses.RaMBORecallLoss(lambda_=4.0 * 400))(np.zeros(4000), data)
        assert gradient.any()


@pytest.mark.parametrize("labels", [[0] * 20, [1] * 20, [1] * 10 + [0] * 10])
def test_data_without_a_list_of_relevant_and_irrelevant_rows_are_a_warning(labels):
    for module, data in of_both(np.zeros((20, 1)), labels, group=[10] * 2):
        with pytest.warns(UserWarning, match="no list has both a relevant and an irrelevant row"):
            module.objective(losses.SupAPLoss())(np.zeros(20), data)


def test_both_train_and_get_better_on_other_queries():
    rows, grades, query = lists()
    fresh, wanted, of = lists(seed=1)
    before = exact("NDCG@10", np.zeros(len(fresh)), wanted, of)
    loss = losses.LambdaLoss(k=10)
    data = lightgbm.Dataset(rows, grades, group=SIZES)
    model = lightgbm.train({**QUIET, "objective": of_lightgbm.objective(loss)}, data, 30)
    assert exact("NDCG@10", model.predict(fresh), wanted, of) > before + 0.1
    matrix = xgboost.DMatrix(rows, grades, qid=query)
    model = xgboost.train(PLAIN, matrix, 30, obj=of_xgboost.objective(loss))
    scores = model.predict(xgboost.DMatrix(fresh), output_margin=True)
    assert exact("NDCG@10", scores, wanted, of) > before + 0.1


@pytest.mark.parametrize("kind", [list, np.array, "file", "pandas", "subset"])
def test_groups_come_in_any_form_that_lightgbm_takes(kind, tmp_path):
    rows, grades, _query = lists()
    scores = np.random.default_rng(0).normal(size=len(rows))
    wanted = of_lightgbm.objective(losses.LambdaLoss())(scores, lightgbm.Dataset(rows, grades, group=SIZES).construct())
    if kind == "file":
        np.savetxt(tmp_path / "data.tsv", np.column_stack([grades, rows]), delimiter="\t")
        np.savetxt(tmp_path / "data.tsv.query", SIZES, fmt="%d")
        data = lightgbm.Dataset(str(tmp_path / "data.tsv"), params={"verbose": -1, "header": False})
    elif kind == "pandas":
        series = pytest.importorskip("pandas").Series
        data = lightgbm.Dataset(rows, series(grades), group=series(SIZES))
    elif kind == "subset":
        more = np.concatenate([rows, rows[:7]]), np.concatenate([grades, grades[:7]])
        data = lightgbm.Dataset(*more, group=[*SIZES, 7]).construct().subset(list(range(len(rows))))
    else:
        data = lightgbm.Dataset(rows, grades, group=kind(SIZES))
    found = of_lightgbm.objective(losses.LambdaLoss())(scores, data.construct())
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_estimators_of_lightgbm_take_them_and_are_cloned_and_pickled():
    clone = pytest.importorskip("sklearn.base").clone
    rows, grades, _query = lists()
    fresh, wanted, of = lists(seed=1)
    ranker = lightgbm.LGBMRanker(
        objective=of_lightgbm.objective(losses.LambdaLoss(k=10)), n_estimators=10, num_leaves=7, n_jobs=1, verbose=-1
    )
    metric = of_lightgbm.metrics("NDCG@10", "AP")
    ranker = clone(ranker).fit(
        rows, grades, group=SIZES, eval_X=fresh, eval_y=wanted, eval_group=[SIZES], eval_metric=metric
    )
    scores = ranker.predict(fresh)
    assert ranker.evals_result_["valid_0"]["AP"][-1] == pytest.approx(exact("AP", scores, wanted, of))
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(fresh), scores)
    data = lightgbm.Dataset(rows, grades, group=SIZES)
    settings = {**QUIET, "objective": of_lightgbm.objective(losses.LambdaLoss(k=10)), "min_data_in_leaf": 20}
    native = lightgbm.train(settings, data, 10)
    np.testing.assert_allclose(native.predict(fresh), scores, atol=1e-9)


@pytest.mark.parametrize("names", [("NDCG@10", "AP"), ("AP", "NDCG@10")])
def test_training_stops_early_at_the_best_of_our_first_metric(names):
    (rows, grades, _), (fresh, wanted, of) = lists(), lists(seed=1)
    data = lightgbm.Dataset(rows, grades, group=SIZES)
    seen = {}
    model = lightgbm.train(
        {**QUIET, "objective": of_lightgbm.objective(losses.LambdaLoss(k=10)), "learning_rate": 0.5},
        data,
        200,
        valid_sets=[lightgbm.Dataset(fresh, wanted, group=SIZES, reference=data)],
        feval=of_lightgbm.metrics(*names),
        callbacks=[
            lightgbm.early_stopping(5, first_metric_only=True, verbose=False),
            lightgbm.record_evaluation(seen),
        ],
    )
    curve = seen["valid_0"][names[0]]
    assert len(curve) < 200 and model.best_iteration == 1 + int(np.argmax(curve))
    scores = model.predict(fresh, num_iteration=model.best_iteration)
    assert max(curve) == pytest.approx(exact(names[0], scores, wanted, of))


@pytest.mark.parametrize("metric", ["None", "binary_logloss"])
def test_an_estimator_of_lightgbm_stops_by_our_metric_only_without_one_of_its_own(metric):
    (rows, hits), (fresh, wanted) = rare(), rare(seed=1)
    seen = {}
    model = lightgbm.LGBMClassifier(
        objective=of_lightgbm.objective(losses.InfoNCELoss(tau=1.0), one_list=True),
        **{"metric": metric, "n_estimators": 200, "num_leaves": 7, "n_jobs": 1, "verbose": -1, "learning_rate": 0.3},
    )
    model.fit(
        rows,
        hits,
        eval_X=fresh,
        eval_y=wanted,
        eval_metric=of_lightgbm.metrics("AP", one_list=True),
        callbacks=[
            lightgbm.early_stopping(5, first_metric_only=True, verbose=False),
            lightgbm.record_evaluation(seen),
        ],
    )
    best = 1 + int(np.argmax(seen["valid_0"]["AP"]))
    assert (model.best_iteration_ == best) == (metric == "None") and len(seen["valid_0"]) == 1 + (metric != "None")


def test_an_estimator_of_xgboost_stops_early_on_one_metric():
    (rows, hits), (fresh, wanted) = rare(), rare(seed=1)
    model = xgboost.XGBClassifier(
        objective=of_xgboost.objective(losses.InfoNCELoss(tau=1.0), one_list=True),
        eval_metric=of_xgboost.metrics("ROC AUC", one_list=True),
        callbacks=[xgboost.callback.EarlyStopping(rounds=5, maximize=True)],
        **{"n_estimators": 200, "n_jobs": 1, "max_depth": 3},
    )
    model.fit(rows, hits, eval_set=[(fresh, wanted)], verbose=False)
    curve = model.evals_result()["validation_0"]["ROC_AUC"]
    assert len(curve) < 200 and model.best_iteration == int(np.argmax(curve)) and model.best_score == max(curve)
    with pytest.raises(ValueError, match="one metric; got 2"):
        of_xgboost.metrics("AP", "ROC AUC", one_list=True)(hits, np.zeros(len(hits)))


def test_lists_without_an_irrelevant_row_have_no_roc_auc():
    grades, scores = np.array([1.0, 0.0, 1.0, 1.0]), np.array([2.0, 1.0, 0.0, 0.0])
    for module, data in of_both(np.zeros((4, 1)), grades, group=[2, 2]):
        assert module.metrics("ROC AUC")(scores, data)[0][1] == 1
    for module, data in of_both(np.zeros((4, 1)), np.ones(4), group=[2, 2]):
        with pytest.raises(ValueError, match="so ROC AUC has no value"):
            module.metrics("AP", "ROC AUC")(scores, data)


@pytest.mark.parametrize("sizes", [[0, 2, 4], [2, 0, 4], [2, 4, 0], [0, 2, 0, 0, 4, 0]])
def test_a_group_without_rows_changes_neither_metric_nor_slope(sizes):
    labels, scores = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 2.0]), np.array([0.1, 0.2, 0.3, 0.5, 0.4, 0.6])
    names = ["NDCG@10", "AP", "MRR", "P@10", "ROC AUC"]
    for (module, data), (_, plain) in zip(
        of_both(np.zeros((6, 1)), labels, group=sizes), of_both(np.zeros((6, 1)), labels, group=[2, 4]), strict=True
    ):
        assert module.metrics(*names)(scores, data) == module.metrics(*names)(scores, plain)
        objective = module.objective(losses.LambdaLoss())
        np.testing.assert_array_equal(objective(scores, data), objective(scores, plain))
    found = of_lightgbm.metrics("AP")(labels, scores, None, np.array(sizes))  # as an estimator calls it
    assert found == of_lightgbm.metrics("AP")(labels, scores, None, np.array([2, 4]))


def test_weights_of_lists_pass_over_a_list_without_rows():
    rows = BoostedRows(np.array([1.0, 0.0, 0.0, 1.0, 0.0, 2.0]), np.array([0, 2, 4]), np.array([9.0, 1.0, 2.0]))
    assert rows.row_weights().tolist() == [1, 1, 2, 2, 2, 2]


def test_xgboost_stops_early_on_our_metric():
    (rows, grades, query), (fresh, wanted, of) = lists(), lists(seed=1)
    model = xgboost.train(
        {**PLAIN, "learning_rate": 0.5},
        xgboost.DMatrix(rows, grades, qid=query),
        200,
        obj=of_xgboost.objective(losses.LambdaLoss("map")),
        evals=[(xgboost.DMatrix(fresh, wanted, qid=of), "valid")],
        custom_metric=of_xgboost.metrics("AP"),
        maximize=True,
        early_stopping_rounds=5,
        verbose_eval=False,
    )
    assert model.num_boosted_rounds() < 200
    scores = model.predict(xgboost.DMatrix(fresh), iteration_range=(0, model.best_iteration + 1))
    assert model.best_score == pytest.approx(exact("AP", scores, wanted, of), abs=1e-5)


def test_all_rows_are_one_list_where_one_says_so():
    average_precision_score = pytest.importorskip("sklearn.metrics").average_precision_score
    (rows, hits), (fresh, wanted) = rare(), rare(seed=1)
    loss, seen = losses.InfoNCELoss(tau=1.0), {}
    data = lightgbm.Dataset(rows, hits)
    model = lightgbm.train(
        {**QUIET, "objective": of_lightgbm.objective(loss, one_list=True)},
        data,
        20,
        valid_sets=[lightgbm.Dataset(fresh, wanted, reference=data)],
        feval=of_lightgbm.metrics("AP", "ROC AUC", one_list=True),
        callbacks=[lightgbm.record_evaluation(seen)],
    )
    value = average_precision_score(wanted, model.predict(fresh))
    assert seen["valid_0"]["AP"][-1] == pytest.approx(value) and value > 0.5
    classifier = xgboost.XGBClassifier(objective=of_xgboost.objective(loss, one_list=True), n_estimators=20, n_jobs=1)
    classifier.fit(rows, hits)
    assert average_precision_score(wanted, classifier.predict(fresh, output_margin=True)) > 0.5
    recorded = {}
    xgboost.train(
        PLAIN,
        xgboost.DMatrix(rows, hits),
        5,
        obj=of_xgboost.objective(loss, one_list=True),
        evals=[(xgboost.DMatrix(fresh, wanted), "valid")],
        custom_metric=of_xgboost.metrics("ROC AUC", one_list=True),
        evals_result=recorded,
        verbose_eval=False,
    )
    assert len(recorded["valid"]["ROC_AUC"]) == 5


def test_weights_of_rows_multiply_both():
    rows, grades, _ = lists()
    weights = np.random.default_rng(0).random(len(rows)) + 0.5
    plain = lightgbm.Dataset(rows, grades, group=SIZES).construct()
    weighted = lightgbm.Dataset(rows, grades, group=SIZES, weight=weights).construct()
    objective, scores = of_lightgbm.objective(losses.LambdaLoss()), rows[:, 3]
    for one, other in zip(objective(scores, weighted), objective(scores, plain), strict=True):
        np.testing.assert_allclose(one, other * weights, rtol=1e-6)


def test_weights_of_lists_are_those_of_their_rows():
    rows, grades, query = lists()
    weights = np.random.default_rng(0).random(len(SIZES)) + 0.5
    plain = xgboost.DMatrix(rows, grades, group=SIZES)
    weighted = xgboost.DMatrix(rows, grades, group=SIZES, weight=weights)
    objective, scores = of_xgboost.objective(losses.LambdaLoss()), rows[:, 3]
    for one, other in zip(objective(scores, weighted), objective(scores, plain), strict=True):
        np.testing.assert_allclose(one, other * weights[query], rtol=1e-6)
    with pytest.raises(ValueError, match="320 rows.*40 lists.*got 7"):
        slopes(losses.LambdaLoss(), scores, BoostedRows(grades, SIZES, weights[:7]))


def test_objectives_are_copied_and_pickled():
    for module, data in of_both(*lists()[:2], group=SIZES):
        for one in (module.objective(losses.LambdaLoss(k=5)), module.metrics("AP")):
            for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
                found, wanted = again(data.get_label(), data), one(data.get_label(), data)
                np.testing.assert_equal(found, wanted)


def test_making_an_objective_does_not_move_the_thresholds_of_its_loss():
    for module in (of_lightgbm, of_xgboost):
        loss = losses.AdaptiveROADMAPLoss()
        module.objective(loss)
        assert loss.calibration.running.isnan().all()


def test_mistakes_are_told():
    rows, grades, _ = lists()
    for module, data in of_both(rows, grades):
        with pytest.raises(ValueError, match="group="):
            module.objective(losses.LambdaLoss())(np.zeros(len(rows)), data)
        with pytest.raises(ValueError, match="group="):
            module.metrics("AP")(np.zeros(len(rows)), data)
        with pytest.raises(ValueError, match="no gradient"):
            module.objective(losses.RankLoss(exact_ranks, metric=metrics.ndcg))
        with pytest.raises(TypeError, match="str"):
            module.objective("lambdarank")
        with pytest.raises(ValueError, match="reduction"):
            module.objective(losses.LambdaLoss(reduction="none"))
    for module, data in of_both(rows, grades, group=SIZES):
        with pytest.raises(ValueError, match="unknown metric"):
            module.metrics("NDGC@10")(np.zeros(len(rows)), data)
    for bad in (np.nan, -1.0):  # LightGBM itself reads a label that is NaN as 0, XGBoost refuses it
        labels = np.where(np.arange(len(rows)) == 17, bad, grades)
        with pytest.raises(ValueError, match="relevance.*17"):
            of_lightgbm.objective(losses.LambdaLoss())(labels, np.zeros(len(rows)), None, np.array(SIZES))
    with pytest.raises(ValueError, match="scores.*3"):
        of_lightgbm.objective(losses.LambdaLoss())(grades, np.full(len(rows), np.nan), None, np.array(SIZES))
    with pytest.raises(ValueError, match="319 rows.*320"):
        of_lightgbm.objective(losses.LambdaLoss())(grades, np.zeros(len(rows)), None, np.array([319]))
