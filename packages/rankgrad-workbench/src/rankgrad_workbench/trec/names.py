"""The names of metrics: those of trec_eval, ir_measures and ranx -> `ListMetric`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from typing import Any

from rankgrad.common.checks import closest

from .metrics import GAINS, GRADED, KINDS, ListMetric, MetricKind

COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")
OFFICIAL = (  # the metrics that trec_eval prints by default
    *COUNTS,
    *("map", "gm_map", "Rprec", "bpref", "recip_rank"),
    *(f"iprec_at_recall_{tenth / 10:.2f}" for tenth in range(11)),
    *(f"P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
)
USUAL = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100", "Rprec", "bpref", "judged_10")
LENGTH = "a list length, an integer >= 1,"
NUMBERS = {"": "no number", "length": LENGTH, "length?": LENGTH, "recall": "a recall, 0 to 1,"}
NONE: list[float | None] = [None]


def metrics_of(names: str | Iterable[str]) -> list[ListMetric]:
    """The metrics with these names; "official" are the metrics that trec_eval prints by default.

    Names are those of trec_eval (ndcg_cut_10, P_5, recall.100,1000) or of ir_measures and ranx (nDCG@10, P(rel=2)@5).

    Raises:
        ValueError: a name is unknown, or a number or option is missing, not allowed or out of range.

    >>> [str(metric) for metric in metrics_of(["nDCG@10", "P.5,10", "AP(rel=2)", "rbp(p=0.9)", "MRR@10"])]
    ['ndcg_cut_10', 'P_5', 'P_10', 'map(rel=2)', 'rbp(p=0.9)', 'recip_rank_10']
    """
    named = [] if isinstance(names, str) else list(names)
    if not named:
        raise ValueError(f"metrics must be a list of names, such as ['map', 'nDCG@10']; got {names!r}")
    found = [metric for name in named for metric in (metrics_of(OFFICIAL) if name == "official" else _named(name))]
    return list({str(metric): metric for metric in found}.values())


def _named(name: str) -> list[ListMetric]:
    if re.fullmatch(r"rbp\.\d+", name):
        raise ValueError(
            f"metric {name!r} is ambiguous: write {name.replace('.', '(p=0.')}) or {name.replace('.', '@')}"
        )
    plain = re.sub(r"(?i)^ndcg(_burges|-exp2)", "ndcg(dcg=exp-log2)", name)
    word, ks, number = re.sub(r"\([^()]*\)", "", plain).strip().lower(), NONE, ""
    behind = re.fullmatch(r"(.+?)[@_.](\d*\.?\d+(?:,\d*\.?\d+)*)", word)
    if behind and not any(word in kind.words for kind in KINDS.values()):
        word, ks, number = behind[1], [float(part) for part in behind[2].split(",")], f"_{behind[2]}"
    kinds = [kind for kind in KINDS.values() if word in kind.words]
    if not kinds:
        raise ValueError(_unknown(name, word, ks, number))
    kind = next((each for each in kinds if _fit(ks, each)), None)
    if kind is None:
        needed = " or ".join(dict.fromkeys(NUMBERS[each.k] for each in kinds))
        raise ValueError(f"metric {name!r} needs {needed} after its name{number and '; got ' + number[1:]}")
    options = _options(kind, ",".join(re.findall(r"\(([^()]*)\)", plain)), name)
    level = options.pop("rel", None)
    return [ListMetric(kind.name, k, level, tuple(options.items())) for k in ks]


def _fit(ks: list[float | None], kind: MetricKind) -> bool:
    """Whether these numbers may be after the name of a metric."""
    if ks == NONE:
        return kind.k in ("", "length?")
    whole = "length" in kind.k
    return bool(kind.k) and all(
        k >= 1 and isfinite(k) and k == int(k) if whole else k <= 1 for k in ks if k is not None
    )


def _unknown(name: str, word: str, ks: list[float | None], number: str) -> str:
    example = {"length": "_10", "recall": "_0.10"}
    listed = [each + example.get(kind.k, "") for each, kind in KINDS.items()]
    names = [each + number for kind in KINDS.values() if _fit(ks, kind) for each in kind.words]
    hint = closest(word + number, names, alike=0.7)
    return f"unknown metric {name!r}{hint} Known: {', '.join(listed)}; the number may be any"


def _options(kind: MetricKind, text: str, name: str) -> dict[str, Any]:
    known = ([] if kind.name in GRADED else ["rel"]) + list(kind.options)
    options: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, value = (word.strip(" '\"") for word in part.partition("="))
        if key not in known:
            raise ValueError(f"metric {name!r} has no option {key!r}; it has {', '.join(known) or 'none'}")
        try:
            options[key] = value if key == "dcg" else int(value) if key == "rel" else float(value)
        except ValueError:
            options[key] = None
        right = options[key] in GAINS if key == "dcg" else options[key] is not None and isfinite(options[key])
        if not right or (key == "p" and not 0 < options[key] < 1):
            raise ValueError(
                f"metric {name!r}: {key} cannot be {value!r}. rel is a grade, an integer; p is a probability between 0 "
                f"and 1; dcg is {' or '.join(GAINS)}; other options are numbers"
            )
    return options
