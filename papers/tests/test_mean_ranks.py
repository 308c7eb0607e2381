"""Mean ranks, Friedman's test, the critical difference and signed ranks, against scipy and published numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, wilcoxon

from rankgrad_papers.mean_ranks import drawn, groups, mean_ranks, signed_ranks, table


def values(methods: int = 4, units: int = 9, seed: int = 0) -> dict[str, dict[str, float]]:
    g = np.random.default_rng(seed)
    return {f"m{m}": {f"u{u}": float(g.normal() + m) for u in range(units)} for m in range(methods)}


def test_mean_ranks_are_those_of_counting_in_each_unit():
    given = values()
    ranks = mean_ranks(given).ranks
    for method, units in given.items():
        counted = [1 + sum(other[unit] > value for other in given.values()) for unit, value in units.items()]
        assert ranks[method] == pytest.approx(np.mean(counted))
    assert list(ranks.values()) == sorted(ranks.values())


def test_level_values_share_their_ranks_and_units_that_a_method_lacks_are_left_out():
    given = {"a": {"x": 1.0, "y": 5.0}, "b": {"x": 1.0}, "c": {"x": 0.0, "y": 9.0}}
    result = mean_ranks(given)
    assert result.ranks == {"a": 1.5, "b": 1.5, "c": 3.0} and result.units == 1


def test_friedman_is_scipys_and_fewer_than_six_units_have_no_p():
    given = values()
    assert mean_ranks(given).p == pytest.approx(friedmanchisquare(*(list(u.values()) for u in given.values())).pvalue)
    assert mean_ranks(values(units=5)).p is None


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (4, 2.569), (7, 2.949), (10, 3.164)])
def test_the_critical_difference_has_the_published_q(methods, q):
    """Demsar, JMLR 2006, table 5 a."""
    units = 12
    expected = q * np.sqrt(methods * (methods + 1) / (6 * units))
    assert mean_ranks(values(methods, units)).critical == pytest.approx(expected, rel=1e-3)


def test_signed_ranks_are_scipys():
    one, other = values(2).values()
    result = signed_ranks(one, other)
    differences = np.array(list(one.values())) - np.array(list(other.values()))
    assert result.p == pytest.approx(wilcoxon(differences).pvalue)
    assert result.difference == pytest.approx(differences.mean()) and result.better == (differences > 0).sum()
    assert signed_ranks(one, one).p == 1.0


def test_a_bar_joins_methods_that_are_not_told_apart():
    result = mean_ranks(values(5, 12))
    places = list(result.ranks)
    for run in groups(result):
        assert result.ranks[run[-1]] - result.ranks[run[0]] < result.critical
        after = places.index(run[-1]) + 1
        assert after == len(places) or result.ranks[places[after]] - result.ranks[run[0]] >= result.critical


def test_the_picture_names_each_method_and_prints_the_marked_one_bold():
    figure = drawn({"AP": mean_ranks(values())}, {"AP": "m2"})
    texts = {text.get_text().split(" (")[0]: text.get_fontweight() for text in figure.axes[0].texts}
    assert set(texts) == {"m0", "m1", "m2", "m3"} and texts["m2"] == "bold" and texts["m1"] == "normal"


def test_the_table_ends_with_friedmans_p():
    head, rows = table({"AP": values(), "ROC AUC": values(seed=1)})
    assert head == ["method", "AP", "mean rank", "ROC AUC", "mean rank"]
    assert rows[-1][0] == "Friedman's p" and float(rows[-1][2]) <= 1 and len(rows) == 5


def test_too_little_to_rank_is_refused():
    with pytest.raises(ValueError, match="1 and 0 units"):
        mean_ranks({"a": {}})
