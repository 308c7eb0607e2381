"""Writes the parts of the pages that come from elsewhere: `make tables`. A test fails where one is out of date.

A page marks such a part by `<!-- KIND WHAT -->` before it and `<!-- end -->` behind it:

    losses                          a row for each loss, as the code describes it
    rates, defaults                 what is taken where nothing is said: rankgrad_workbench/files/defaults.py
    ranks FILE: METRIC, METRIC      mean and mean rank of each method over the units, and Friedman's p;
                                    "; without METHOD" leaves one out
    search COLLECTION               the tests of the hypotheses about a search; Holm over all of them
    signed FILE: METRIC=METHOD; METRIC=METHOD; against METHOD; against METHOD
                                    signed ranks of a method against others, each in its metric; Holm over the rows
    matrix FILE: SET                the matrix of a data set: each loss with the trial kept for the metric
    matrix FILE: E1                 the comparisons of a hypothesis of the matrix: D1, E1, E3, F1, H1
    matrix FILE: E2                 how often the loss made for a metric is the best of all
    matrix FILE: means              each loss: its mean over the sets and their metrics
    photographs FOLDER              the comparisons of the hypotheses of the photographs, D2 to D10
    table FILE                      a csv below docs/results
    table FILE: COLUMN, COLUMN      some of its columns
    metrics FILE: ONE; OTHER        two settings, a row for each metric
    difference FILE: METRIC; ONE; OTHER
                                    one setting minus another, within a sentence: the mean and its 95 % interval.
                                    An OTHER of another file has that before it: FILE.csv: OTHER
    fine-tuning FILE; PART, PART    parts of a fine-tuning that were changed, all or some: R@1 / mAP@R on each set
    pretrained FILE; FOLD           a pretrained network fine-tuned with each loss, on all folds or on one:
                                    fine_tuned.compared
    ahead FILE: METRIC; ONE; OTHER  one loss of that file minus another, or minus "untouched", within a sentence: the
                                    mean over the data sets and its 95 % interval; with "; folds" over their folds, and
                                    with "; folds of SET" over those of one set
    share FILE: METRIC; ONE; OTHER  one setting in per cent of another, within a sentence: the same of the shares

Measured numbers are kept value by value, and all that a page says of them is computed here:

    loss,rate,seed,metric,value                  (papers/results/FILE.csv)
    supap,.01,0,mAP@R,37.21
    supap,.01,0,R@1,72.08
    supap,.01,1,mAP@R,36.64

A row is one number. `metric` and `value` are always there, shares are per cent, and full precision is kept. `seed` says
which training it was. `unit` says which alphabet, fold or data set, where those are compared: the seeds of a unit are
then averaged first. `commit` and `processor` say what measured it; they are empty for values from before they were
recorded. All other columns are the setting. Rows may come in any order, and a queue of trainings adds those
of a run when it ends (`rankgrad_papers.values`: `append`, `cells`). In the table of such a file a row is a setting: its
mean ± standard deviation over the units, and how many there are. What follows the columns, behind a semicolon:

    table FILE: loss, R@1; where rate=.01 and memory=none      some of the settings; also "where loss=a or loss=b"
    table FILE: R@1, mAP@R; mAP@R against loss=supap           the difference from one setting, with a 95 % interval
    table FILE: R@1, cosine; cosine over 0.95                  how many of the values are larger

There is a p, of a paired t-test and corrected by Holm for the rows of the table, for six units or more.

ONE and OTHER are texts of a setting's columns: `row=SupAP and batch_size=32`. The ID.csv of `rankgrad reproduce`, whose
column `by_seed` has the values, is read in the same way. Any other csv is shown as it is; it has no ± and no p.
The page of benchmarks is written as a whole, from the json files beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.page import page as benchmarks
from benchmarks.runs import table as run_files
from rankgrad.evaluation.statistics import PairedDifference, holm, spread
from rankgrad.losses import LOSSES
from rankgrad_papers import mean_ranks
from rankgrad_papers.studies import photographs_verdicts
from rankgrad_papers.studies.fine_tuned import compared, paired
from rankgrad_papers.studies.matrix import COLUMNS
from rankgrad_papers.studies.matrix import LOSSES as MATRIX
from rankgrad_papers.studies.matrix_verdicts import Matrix
from rankgrad_papers.studies.search import tested
from rankgrad_papers.values import Setting, Values, read, read_rows
from rankgrad_papers.values import difference as minus
from rankgrad_workbench.files import defaults
from rankgrad_workbench.runs.provenance import MADE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LABORATORY = ROOT / "papers"
RESULTS = LABORATORY / "results"
FOLDERS = (DOCS, LABORATORY / "docs")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted(folder.glob("*.md")))]
PAGES += sorted(RESULTS.rglob("*.md"))
BLOCK = re.compile(
    r"(<!-- (losses|rates|defaults|table|matrix|photographs|metrics|ranks|signed|fine-tuning|pretrained|search)"
    r"(?: ([^\n]*))? -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)
WITHIN = re.compile(r"(<!-- (difference|share|ahead) (.*?) -->)[^\n]*?(<!-- end -->)")
HEADS = {"row": "method", "batch_size": "batch"}  # of columns of reproduce
# Of benchmarks/, in the order of the page.
MEASURED = (
    "results",
    "lists",
    "large_batch",
    "growth",
    "launches",
    "texts",
    "pipeline",
    "allocator",
    "csv_files",
    "soft_ranks",
    "mining",
    "command_step",
    "corpus",
)


def losses() -> str:
    """A row for each loss."""
    head = "| name | class | what it optimises | paper | sees |\n|---|---|---|---|---|\n"
    rows = [
        f"| `{name}` | `{kind.__name__}` | {kind.optimises} | {_links(kind.source)} "
        f"| {'differences' if kind.differences_only else 'scores'}{', gains' if kind.graded else ''} |\n"
        for name, kind in LOSSES.items()
    ]
    return head + "".join(rows)


def _links(source: str) -> str:
    """The links of a source; the reference has it whole."""
    return ", ".join(re.findall(r"\[[^\]]+\]\([^)]+\)", source)) or source


def rates() -> str:
    """A row for each kind of model, and one for heads alone."""
    rows = [["model", "from scratch", "trained before"], ["---", "--:", "--:"]]
    for kind, (scratch, before) in defaults.RATES.items():
        if kind == "given":  # whether it was trained before nobody knows
            rows.append(["a module of [your own](your-own-loop.md)", f"{scratch:g}", ""])
        else:
            rows.append([f"`{kind}`", *("" if rate is None else f"{rate:g}" for rate in (scratch, before))])
    rows.append(["a new head on frozen features (`frozen=true`)", f"{defaults.FROZEN:g}", ""])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def others() -> str:
    """A row for each default that is no rate."""
    rows = [["setting", "default"], ["---", "---"]]
    for takes, (name, own) in defaults.LOSSES.items():
        words = " ".join([f"loss={name}", *(f"loss.{setting}={value:g}" for setting, value in own.items())])
        rows.append([f"`loss`, for {takes}", f"`{words}`"])
    for setting in ("classes_per_batch", "samples_per_class", "short_classes"):
        rows.append([f"`sampler.{setting}`", str(getattr(defaults, setting.upper()))])
    for setting in ("weight_decay", "factor", "restart"):
        rows.append([f"`optimizer.{setting}`", f"{getattr(defaults, setting.upper()):g}"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def table(what: str) -> str:
    """A csv as Markdown."""
    file, columns, *parts = _parted(what)
    shown = [name.strip() for name in columns.split(",") if name.strip()]
    path = RESULTS / file
    _, rows = read_rows(path)
    if {"value", "by_seed"}.isdisjoint(rows[0]):
        shown = shown or [name for name in rows[0] if name not in MADE]
        return _markdown([shown, *([row[name] for name in shown] for row in rows)])
    return of_values(read(path), shown, parts)


def of_values(values: Values, shown: Sequence[str], parts: Sequence[str] = ()) -> str:
    """A row for each setting.

    Args:
        values: of a file.
        shown: columns and metrics; none: what differs between the settings, and all metrics.
        parts: "where SETTING", "METRIC against SETTING" and "METRIC over NUMBER".
    """
    against: list[tuple[str, Setting]] = []
    over: list[tuple[str, float]] = []
    for part in parts:
        measure, counts, most = part.rpartition(" over ")
        if counts:
            over.append((measure, float(most)))
            continue
        left, _, right = part.rpartition("against ") if "against " in part else part.rpartition("where ")
        if left:
            against.append((left.strip(), setting(right)))
        else:
            kept = [values.where(setting(one)) for one in right.split(" or ")]
            values = Values([each for part in kept for each in part], values.name)
    settings = values.settings
    names = list(dict.fromkeys(name for each in settings for name in each))
    columns = [name for name in shown if name in names]
    columns = columns or [name for name in names if len({each.get(name) for each in settings}) > 1]
    metrics = [name for name in shown if name in values.metrics] or values.metrics
    units = "units" if values.of_units else "seeds"
    rows = []
    for each in settings:
        numbers = [list(values.units(each, metric).values()) for metric in metrics]
        rows.append([*(each.get(name, "") for name in columns), str(max(map(len, numbers))), *map(_spread, numbers)])
    head = [*(HEADS.get(name, name) for name in columns), units, *metrics]
    for metric, bound in over:
        head.append(f"{metric} over {bound:g}")
        for row, each in zip(rows, settings, strict=True):
            numbers = list(values.units(each, metric).values())
            row.append(f"{sum(number > bound for number in numbers)} of {len(numbers)}")
    for metric, other in against:
        base, rest = values.units(other, metric), [each for each in settings if not other.items() <= each.items()]
        found = [minus(values.units(each, metric), base) if each in rest else None for each in settings]
        title, cells = _differences(found)
        head += [f"{metric}: {name}" for name in title]
        rows = [row + more for row, more in zip(rows, cells, strict=True)]
    return _markdown([head, *rows])


def metrics(what: str) -> str:
    """Two settings of a file of values, a row for each metric."""
    file, *both = _parted(what)
    values, (one, other) = read(RESULTS / file), map(setting, both)
    found = {name: (values.units(one, name), values.units(other, name)) for name in values.metrics}
    found = {name: pair for name, pair in found.items() if all(pair)}
    title, cells = _differences([minus(*pair) for pair in found.values()])
    rows = [
        [name, *(_spread(list(each.values())) for each in pair), *more]
        for (name, pair), more in zip(found.items(), cells, strict=True)
    ]
    return _markdown([["metric", *(", ".join(each.values()) for each in (one, other)), *title], *rows])


def ranks(what: str) -> str:
    """Mean ranks of the methods of a file over its units."""
    file, shown, *parts = _parted(what)
    left_out = [part.removeprefix("without ") for part in parts]
    values = read(RESULTS / file)
    methods = [each["method"] for each in values.settings if each["method"] not in left_out]
    head, rows = mean_ranks.table(
        {
            metric.strip(): {method: values.units({"method": method}, metric.strip()) for method in methods}
            for metric in shown.split(",")
        }
    )
    return _markdown([head, *rows])


def searched(collection: str) -> str:
    """The tests of the hypotheses about a search; Holm over all of them."""
    rows = tested(collection, RESULTS / "search" / f"{collection}-queries.csv")
    return _markdown([[*rows[0]], *([*row.values()] for row in rows)])


def signed(what: str) -> str:
    """Signed ranks of methods against others."""
    file, *parts = _parted(what)
    values = read(RESULTS / file)
    others = [part.removeprefix("against ") for part in parts if part.startswith("against ")]
    rows, found = [], []
    for part in parts[: len(parts) - len(others)]:
        metric, _, method = part.partition("=")
        for other in others:
            pair = (values.units({"method": name}, metric) for name in (method, other))
            found.append(mean_ranks.signed_ranks(*pair))
            rows.append([metric, method, other])
    for row, each, p in zip(rows, found, holm([each.p for each in found]), strict=True):
        row += [_signed(each.difference), f"{each.better} of {each.units}", "" if p is None else f"{p:.2g}"]
    return _markdown([["metric", "loss", "against", "mean difference", "better in", "p (Holm)"], *rows])


def matrix(what: str) -> str:
    """A set of the matrix, or the comparisons of one of its hypotheses."""
    file, wanted = _parted(what)
    of = Matrix(RESULTS / file)
    if wanted in of.kept:
        rows = [
            [f"`{loss}`", row.column, *(_spread([*of.test(wanted, loss, column).values()]) for column in COLUMNS)]
            for loss, row in MATRIX.items()
        ]
        return _markdown([["loss", "made for", *COLUMNS], *rows])
    if wanted == "E2":
        wins = of.wins()
        rows = [
            [data, ", ".join(metrics) or "none", f"{len(metrics)} of {len(COLUMNS)}"] for data, metrics in wins.items()
        ]
        total = sum(map(len, wins.values()))
        rows.append(["all sets", "", f"{total} of {len(COLUMNS) * len(wins)}"])
        return _markdown([["set", "metrics", "count"], *rows])
    if wanted == "means":
        means = sorted(of.overall().items(), key=lambda item: -item[1])
        return _markdown([["loss", "mean"], *([f"`{loss}`", f"{value:.1f}"] for loss, value in means)])
    rows = [
        [line.data, line.metric, line.what, _signed(line.difference), _interval(line.interval)]
        for line in of.lines(wanted)
    ]
    return _markdown([["set", "metric", "compared", "difference", "95 % interval"], *rows])


def photographs(folder: str) -> str:
    """What judges the hypotheses of the photographs: a row for each comparison."""
    rows = [
        [hypothesis, line.metric, line.what, _signed(line.difference, 2), _interval(line.interval, 2)]
        for hypothesis in photographs_verdicts.LINES
        for line in photographs_verdicts.compared(RESULTS / folder, hypothesis)
    ]
    return _markdown([["", "metric", "compared", "difference", "95 % interval"], *rows])


def fine_tuning(what: str) -> str:
    """R@1 / mAP@R on each data set, means over its folds, and how often a training was below the untouched network."""
    file, _, only = what.partition("; ")
    values = read(RESULTS / file)
    sets = list(dict.fromkeys(each["data"] for each in values.settings))

    def both(data: str, changed: str, share: str) -> list[dict[str, float]]:
        key = {"data": data, "changed": changed, "share": share}
        return [values.units(key, metric) for metric in ("R@1", "mAP@R")]

    rows = [["", *sets, "folds below untouched"]]
    parts = only.split(", ") if only else dict.fromkeys(each["changed"] for each in values.settings)
    for changed in parts:
        longer = changed.startswith("steps=")
        for share in (
            *(["0"] if changed == "base" else []),
            "1",
            "0.75",
            *(["0.5"] if changed == "base" or longer else []),
        ):
            cells, below, folds = [], 0, 0
            for data in sets:
                if not any(each["data"] == data and each["changed"] == changed for each in values.settings):
                    cells.append("")
                    continue
                now, before = both(data, changed, share), both(data, changed, "0")
                cells.append(" / ".join(f"{sum(each.values()) / len(each):.1f}" for each in now))
                folds += len(now[0])
                below += sum(any(a[fold] < b[fold] for a, b in zip(now, before, strict=True)) for fold in now[0])
            name = "untouched" if share == "0" else f"{changed}, share {share.removeprefix('0')}"
            rows.append([name, *cells, "" if share == "0" else f"{below} of {folds}"])
    return _markdown(rows)


def pretrained(what: str) -> str:
    """A pretrained network fine-tuned with each loss, beside the untouched one."""
    file, _, fold = what.partition("; ")
    return _markdown(compared(read(RESULTS / file), *([[fold]] if fold else [])))


def _interval(ends: tuple[float, float] | None, digits: int = 1) -> str:
    return "" if ends is None else f"{_signed(ends[0], digits)} to {_signed(ends[1], digits)}"


def difference(what: str) -> str:
    """One setting minus another: the mean of the differences, and its 95 % interval."""
    first, second = _two_settings(what)
    found = minus(first, second)
    if found is None:
        raise ValueError(f"difference {what}: fewer than two units have both")
    digits = _digits([*first.values(), *second.values()])
    return _with_interval(found, digits)


def _with_interval(found: PairedDifference, digits: int) -> str:
    return f"{_signed(found.mean, digits)} ({_signed(found.low, digits)} to {_signed(found.high, digits)})"


def ahead(what: str) -> str:
    """A loss for a pretrained network minus another: the mean over the data sets or folds, and its 95 % interval."""
    file, _, rest = what.partition(": ")
    metric, one, other, *unit = rest.split("; ")
    by, _, only = unit[0].partition(" of ") if unit else ("sets", "", "")
    pair = paired(read(RESULTS / file), one, other, metric, trials=1, by_fold=by == "folds")
    found = minus(*({name: value for name, value in each.items() if name.startswith(only)} for each in pair))
    if found is None or by not in ("sets", "folds"):
        raise ValueError(f"ahead {what}: fewer than two data sets have both, or the unit is not folds")
    return _with_interval(found, 1)


def share(what: str) -> str:
    """One setting in per cent of another: the mean of the shares, and its 95 % interval."""
    first, second = _two_settings(what)
    shares = {unit: 100 * value / second[unit] for unit, value in first.items() if unit in second}
    found = minus(shares, dict.fromkeys(shares, 0.0))
    if found is None:
        raise ValueError(f"share {what}: fewer than two units have both")
    return f"{found.mean:.0f} % ({found.low:.0f} to {found.high:.0f})".replace("-", "− ")


def _two_settings(what: str) -> tuple[dict[str, float], dict[str, float]]:
    """Unit -> value of each of the two."""
    file, metric, one, other = _parted(what)
    elsewhere, _, other = other.rpartition(".csv:")
    first = read(RESULTS / file).units(setting(one), metric)
    return first, read(RESULTS / (f"{elsewhere}.csv" if elsewhere else file)).units(setting(other), metric)


def setting(text: str) -> Setting:
    """NAME=TEXT and NAME=TEXT."""
    pairs = (part.partition("=") for part in text.replace("\\|", "|").split(" and "))  # a bar ends a cell of a table
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parted(what: str) -> list[str]:
    file, _, rest = what.partition(":")
    return [file.strip(), *(part.strip() for part in rest.split(";"))]


def _differences(found: Sequence[PairedDifference | None]) -> tuple[list[str], list[list[str]]]:
    """Columns of differences: their heads, and the cells of each row."""
    corrected = holm([None if each is None else each.p for each in found])
    tested = any(p is not None for p in corrected)
    cells = []
    for each, p in zip(found, corrected, strict=True):
        row = ["", ""] if each is None else [_signed(each.mean), f"{_signed(each.low)} to {_signed(each.high)}"]
        cells.append([*row, "" if p is None else f"{p:.2g}"] if tested else row)
    return ["difference", "95 % interval", *(["p (Holm)"] if tested else [])], cells


def _spread(numbers: Sequence[float]) -> str:
    """Mean and standard deviation."""
    if not numbers:
        return ""
    (mean, deviation), digits = spread(numbers), _digits(numbers)
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _digits(numbers: Sequence[float]) -> int:
    """Behind the point. Numbers up to 1 are no per cents."""
    return 1 if max(map(abs, numbers)) > 1 else 3


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "− ").replace("+", "+ ")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Columns with a number in them stand to the right."""
    head, *rest = rows
    sides = ["--:" if any(re.match(r"[-−+]? ?[.\d]", row[n]) for row in rest) else "---" for n in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, sides, *rest))


def filled(page: Path) -> str:
    """The page with its parts as their sources are now."""

    def part(found: re.Match[str]) -> str:
        written = {"losses": losses, "rates": rates, "defaults": others}
        if found[2] in written:
            return f"{found[1]}{written[found[2]]()}{found[4]}"
        kinds = {"table": table, "matrix": matrix, "photographs": photographs}
        kinds |= {"metrics": metrics, "ranks": ranks, "signed": signed}
        kinds |= {"fine-tuning": fine_tuning, "pretrained": pretrained, "search": searched}
        return f"{found[1]}{kinds[found[2]](found[3])}{found[4]}"

    content = BLOCK.sub(part, page.read_text(encoding="utf-8"))
    within = {"difference": difference, "share": share, "ahead": ahead}
    return WITHIN.sub(lambda found: f"{found[1]}{within[found[2]](found[3])}{found[4]}", content)


def measured() -> str:
    """The page of benchmarks, as its numbers have it."""
    folder = ROOT / "benchmarks"
    *records, runs = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in (*MEASURED, "runs"))
    return f"{benchmarks(*records)}\n{run_files(runs)}"


if __name__ == "__main__":
    (ROOT / "benchmarks" / "README.md").write_text(measured(), encoding="utf-8")
    for each in PAGES:
        each.write_text(filled(each), encoding="utf-8")
