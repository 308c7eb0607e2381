"""The names of metrics: those of trec_eval, ir_measures and ranx -> `ListMetric`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rankgrad.common.checks import closest, number

from .metrics import GAINS, GRADED, KINDS, ListMetric

COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")
OFFICIAL = (  # the metrics that trec_eval prints by default
    *COUNTS,
    *("map", "gm_map", "Rprec", "bpref", "recip_rank"),
    *(f"iprec_at_recall_{tenth / 10:.2f}" for tenth in range(11)),
    *(f"P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
)
USUAL = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100", "Rprec", "bpref", "judged_10")
#: Names in lower case -> kind of metric: first without a number after them, then with one.
ALIASES: tuple[dict[str, str], dict[str, str]] = (
    {
        each: name
        for name, kind in KINDS.items()
        if kind.k in ("", "length?")
        for each in (name.lower(), *kind.names.split())
    },
    {each: name for name, kind in KINDS.items() if kind.k for each in (name.lower(), *kind.names.split())},
)


def metrics_of(names: str | Iterable[str]) -> list[ListMetric]:
    """The metrics with these names; "official" are the metrics that trec_eval prints by default.

    Names are those of trec_eval (ndcg_cut_10, P_5, recall.100,1000) or of ir_measures and ranx (nDCG@10, P(rel=2)@5).

    Raises:
        ValueError: a name is unknown, or a number or option is missing, not allowed or out of range.

    >>> [str(metric) for metric in metrics_of(["nDCG@10", "P.5,10", "AP(rel=2)", "rbp(p=0.9)", "MRR@10"])]
    ['ndcg_cut_10', 'P_5', 'P_10', 'map(rel=2)', 'rbp(p=0.9)', 'recip_rank_10']
    """
    if isinstance(names, str):
        raise ValueError(f"metrics must be a list of names, such as ['map', 'nDCG@10']; got {names!r}")
    found: dict[str, ListMetric] = {}
    for name in names:
        for metric in metrics_of(OFFICIAL) if name == "official" else _named(name):
            found.setdefault(str(metric), metric)
    if not found:
        raise ValueError("metrics must have at least one name, such as ['map', 'nDCG@10']; got none")
    return list(found.values())


def _named(name: str) -> list[ListMetric]:
    if re.fullmatch(r"rbp\.\d+", name):
        raise ValueError(
            f"metric {name!r} is ambiguous: write {name.replace('.', '(p=0.')}) or {name.replace('.', '@')}"
        )
    plain = re.sub(r"(?i)^ndcg(_burges|-exp2)", "ndcg(dcg=exp-log2)", name)
    options = ",".join(re.findall(r"\(([^()]*)\)", plain))
    bare = re.sub(r"\([^()]*\)", "", plain).strip()
    behind = re.fullmatch(r"(.+?)[@_.]([0-9.][0-9.,]*)", bare)
    ks: list[float | None] = [None]
    if behind and bare.lower() not in ALIASES[0]:
        bare, ks = behind[1], [_float(part, name) for part in behind[2].split(",")]
    else:
        behind = None
    # if the name needs a number and has none, or the other way round, `_checked` says so
    kind = ALIASES[bool(behind)].get(bare.lower()) or ALIASES[not behind].get(bare.lower())
    if kind is None:
        raise ValueError(_unknown(name, bare, f"_{behind[2]}" if behind else ""))
    return [_checked(ListMetric(kind, k, *_options(kind, options, name)), name) for k in ks]


def _unknown(name: str, bare: str, number: str) -> str:
    """The message about a metric that there is not.

    Args:
        name: as it was given.
        bare: the same without number and options.
        number: the end with the number, or "".
    """
    from rankgrad.evaluation.measures import FOREIGN, NOT_HERE, OTHERS, WHOLE  # they need torch

    lengths = [f"{known}_10" for known, kind in KINDS.items() if kind.k.startswith("length")]
    whole = [known for known, kind in KINDS.items() if kind.k in ("", "length?")]
    known = f"Known: {', '.join(whole)}, {', '.join(lengths)}, iprec_at_recall_0.10; the number may be any"
    if bare.lower() in FOREIGN:
        return f"unknown metric {name!r}, {NOT_HERE}. {known}"
    if name.lower() in {each.lower() for each in (*WHOLE, *OTHERS)}:
        return f"unknown metric {name!r}, which is computed for embeddings alone (rankgrad evaluate RUN). {known}"
    fits = ("", "length?") if not number else ("recall",) if "." in number else ("length", "length?")
    taken = [alias + number for alias, kind in ALIASES[bool(number)].items() if KINDS[kind].k in fits]
    return f"unknown metric {name!r}{closest(bare + number, [*whole, *taken], alike=0.7)} {known}"


def _float(text: str, name: str) -> float:
    try:
        return number(float(text), name)
    except ValueError:
        raise ValueError(f"metric {name!r}: {text!r} is not a finite number") from None


def _options(kind: str, text: str, name: str) -> tuple[int | None, tuple[tuple[str, Any], ...]]:
    """Lowest relevant grade, and the other options."""
    level: int | None = None
    options: list[tuple[str, Any]] = []
    known = ([] if kind in GRADED else ["rel"]) + list(KINDS[kind].options)
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (word.strip(" '\"") for word in part.partition("="))
        if key not in known:
            raise ValueError(f"metric {name!r} has no option {key!r}; it has {', '.join(known) or 'none'}")
        if key == "dcg":
            if value not in GAINS:
                raise ValueError(f"metric {name!r}: dcg must be {' or '.join(GAINS)}; got {value!r}")
            options.append((key, value))
        elif key == "rel":
            if _float(value, name) != int(_float(value, name)):
                raise ValueError(f"metric {name!r}: rel is the lowest relevant grade, an integer; got {value}")
            level = int(_float(value, name))
        else:
            options.append((key, _float(value, name)))
    return level, tuple(options)


def _checked(metric: ListMetric, name: str) -> ListMetric:
    kind, k = KINDS[metric.kind], metric.k
    if kind.k == "recall":
        fits, wanted = k is not None and 0 <= k <= 1, "a recall, 0 to 1,"
    elif kind.k:
        fits = kind.k == "length?" if k is None else k >= 1 and k == int(k)
        wanted = "a list length, an integer >= 1,"
    else:
        fits, wanted = k is None, "no number"
    if not fits:
        raise ValueError(f"metric {name!r} needs {wanted} after its name" + ("" if k is None else f"; got {k:g}"))
    p = dict(metric.options).get("p", 0.5)
    if not 0 < p < 1:
        raise ValueError(f"metric {name!r}: p is a probability and must be between 0 and 1; got {p:g}")
    return metric
