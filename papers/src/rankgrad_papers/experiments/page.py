"""Results as text: one table for people (Markdown, LaTeX), one line per number for programs (csv, JSON)."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rankgrad.common import text
from rankgrad_workbench.runs.provenance import MADE, joined, made_by

from .measures import DISTANCES, MINUTES
from .numbers import Number
from .outcome import Outcome, ResultLine

NAMES = {
    "batch_size": "batch",
    "image_size": "image",
    "dataset": "data",
    "minutes_per_epoch": "min/epoch",
    "DG_AP": "DG_AP (%)",
    "DG_AP_relative_decrease_percent": "DG_AP decrease (%)",
    "mAP@R_relative_increase_percent": "mAP@R increase (%)",
}


@dataclass(frozen=True)
class Sheet:
    """A table of text. The first column is aligned to the left, the others to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As a Markdown table with padding, so that the source is readable."""
        return text.markdown([self.columns, *self.rows])

    def csv(self) -> str:
        """As csv, with the commit and the processor."""
        stream = io.StringIO()
        made = made_by()
        rows = [[*self.columns, *made], *([*row, *made.values()] for row in self.rows)]
        csv.writer(stream, lineterminator="\n").writerows(rows)
        return stream.getvalue()

    def latex(self) -> str:
        """As a LaTeX tabular with the package booktabs."""
        lines = [" & ".join(_escape(text) for text in row) + r" \\" for row in (self.columns, *self.rows)]
        head = rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        return "\n".join([head, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"])


def varying(lines: Sequence[ResultLine]) -> list[str]:
    """Names of the labels that differ between lines."""
    names = dict.fromkeys(name for line in lines for name in line.labels)
    return [name for name in names if len({line.labels.get(name) for line in lines}) > 1]


def results(outcome: Outcome) -> list[tuple[str, Sheet]]:
    """(data set, table) of our and the printed numbers: one table per data set at full size, one for a stand-in."""
    if outcome.label is not None:
        return [("", _results(outcome, outcome.lines))]
    parts: dict[str, list[ResultLine]] = {}
    for line in outcome.lines:
        parts.setdefault(line.labels.get("dataset", ""), []).append(line)
    return [(name if len(parts) > 1 else "", _results(outcome, lines)) for name, lines in parts.items()]


def _results(outcome: Outcome, lines: Sequence[ResultLine]) -> Sheet:
    """One line per cell: each metric, the paper's number, and the difference (not for a stand-in)."""
    labels = varying(lines)
    columns = ["method", *(_heading(outcome, name) for name in labels)]
    asked = {line: {metric for cell in line.cells for metric in cell.metrics} for line in lines}
    metrics = [metric for metric in outcome.grid.metrics if any(metric in asked[line] for line in lines)]
    # metric -> data sets for which the paper has a number
    papers = {m: list(dict.fromkeys(name for line in lines for name in line.paper.get(m, {}))) for m in metrics}
    for metric in metrics:
        columns.append(NAMES.get(metric, metric))
        if papers[metric]:
            columns.append(f"paper: {' / '.join(papers[metric])}" if len(papers[metric]) > 1 else "paper")
            columns += [] if outcome.label else ["diff"]
    rows = []
    for line in lines:
        row = [line.row, *(line.labels.get(name, "") for name in labels)]
        for metric in metrics:
            numbers = line.paper.get(metric, {})
            cells = [_ours(line, metric, numbers)]
            if papers[metric]:
                cells.append(" / ".join(_printed(numbers.get(name)) for name in papers[metric]))
                if outcome.label is None:
                    number = None if line.off_counts else next(iter(numbers.values()), None)
                    cells.append(_difference(line.values.get(metric, {}), number))
            row += cells if metric in asked[line] else [""] * len(cells)
        rows.append([*row, str(len(line.runs))])
    return Sheet([*columns, "seeds"], rows)


def _heading(outcome: Outcome, label: str) -> str:
    """Heading of a column of labels. In a stand-in, labels that it does not vary itself are those of the paper."""
    varied = any(label in cell.varies for cell in outcome.grid.cells)
    return ("paper's " if outcome.label and not varied else "") + NAMES.get(label, label)


def comparisons(outcome: Outcome) -> Sheet:
    """The paired t-tests."""
    labels = varying(outcome.lines)
    rows = [
        [
            f"{test.row} - {test.other}",
            *(test.labels.get(name, "") for name in labels),
            NAMES.get(test.metric, test.metric),
            f"{test.difference:+.2f}",
            f"{test.low:+.2f} to {test.high:+.2f}",
            "-" if test.p is None else f"{test.p:.2g}",
            str(test.n),
        ]
        for test in outcome.tests
    ]
    named = (_heading(outcome, name) for name in labels)
    return Sheet(["paired t-test", *named, "metric", "mean diff", "95 % interval", "p", "seeds"], rows)


def others(outcome: Outcome) -> Sheet:
    """Rows of the paper's table without a run."""
    rows: dict[tuple[str, ...], dict[str, Number]] = {}
    names = ("dataset", "backbone", "dim", "batch_size")
    shown = [name for name in names if any(name in number.where for number in outcome.others)]
    for number in outcome.others:
        key = (number.row, *(number.where.get(name, "") for name in shown))
        rows.setdefault(key, {})[number.metric] = number
    metrics = list(dict.fromkeys(number.metric for number in outcome.others))
    return Sheet(
        ["method", *(NAMES.get(name, name) for name in shown), *(NAMES.get(m, m) for m in metrics)],
        [[*key, *(_printed(values.get(metric)) for metric in metrics)] for key, values in rows.items()],
    )


def markdown(outcome: Outcome) -> str:
    """The whole page in Markdown."""
    grid = outcome.grid
    parts = [f"# {_title(outcome)}"]
    parts += [f"**{label}**" for label in outcome.labels]
    parts.append(_how(outcome))
    for name, sheet in results(outcome):
        parts += [*([f"## {name}"] if name else []), sheet.markdown()]
    if outcome.tests:
        parts.append(comparisons(outcome).markdown())
    if outcome.others:
        parts += [
            "Other rows of the paper's table. They are copied from the paper and were not run here:",
            others(outcome).markdown(),
        ]
    notes = [*grid.notes, *([] if outcome.label else _remarks(outcome.lines))]
    if notes:
        parts.append("\n".join(f"* {note}" for note in notes))
    if outcome.missing:
        parts.append("\n".join(["Missing:", "", *(f"* {text}" for text in outcome.missing)]))
    return "\n\n".join(parts) + "\n"


def latex(outcome: Outcome) -> str:
    """Tables with captions; they need the package booktabs."""
    label = "".join(f" {label}." for label in outcome.labels)
    tables = [(f"{outcome.grid.title}{f', {n}' if n else ''}.{label} {_how(outcome)}", s) for n, s in results(outcome)]
    if outcome.tests:
        tables.append((f"Paired t-tests over seeds.{label}", comparisons(outcome)))
    lines = [f"% {': '.join([outcome.grid.id, *outcome.labels])}"]
    for caption, sheet in tables:
        lines += [r"\begin{table}", r"\centering", sheet.latex(), rf"\caption{{{_escape(caption)}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


COLUMNS = ("dataset", "backbone", "dim", "batch_size", "image_size")


def csv_text(outcome: Outcome) -> str:
    """One line per cell and metric."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ["id", "row", *COLUMNS, "varies", "metric", "paper", "paper_std", "ours_on", "ours", "ours_std", "n"]
    writer.writerow([*head, "by_seed", "difference", "rule", "settings", "label", "off_counts", *MADE])
    for line in outcome.lines:
        made = joined(run.read_facts() for run in line.runs.values()).values()
        for cell in line.cells:
            for metric in cell.metrics:
                values = line.values.get(metric, {})
                number = line.paper.get(metric, {}).get(cell.dataset)
                mean, std = _mean_std(values)
                printed_value = None if number is None or outcome.label or line.off_counts else number.value
                varies = " ".join(f"{axis}={place:g}" for axis, place in cell.varies.items())
                where = (cell.where.get(name, "") for name in COLUMNS)
                printed = ("", "") if number is None else (number.text, number.std)
                own = ("" if value is None else f"{value:.6g}" for value in (mean, std))
                seeds = " ".join(f"{seed}:{value:.6g}" for seed, value in sorted(values.items()))
                difference = "" if mean is None or printed_value is None else f"{mean - printed_value:.6g}"
                on = outcome.data or cell.dataset
                row = [outcome.grid.id, line.row, *where, varies, metric, *printed, on, *own, len(values), seeds]
                why = (outcome.label or "", line.off_counts)
                writer.writerow([*row, difference, outcome.rule, " ".join(cell.settings), *why, *made])
    return stream.getvalue()


def json_text(outcome: Outcome) -> str:
    """All results as json, with the value of each seed."""
    content = {
        "id": outcome.grid.id,
        "title": outcome.grid.title,
        "label": outcome.label,
        "off_counts": list(outcome.labels) if outcome.label is None else [],
        "rule": outcome.rule,
        "seeds": list(outcome.seeds),
        "settings": list(outcome.settings),
        "lines": [_line(line) for line in outcome.lines],
        "t_tests": [{**vars(test), "labels": dict(test.labels)} for test in outcome.tests],
        "missing": list(outcome.missing),
    }
    return json.dumps(content, indent=1) + "\n"


def _line(line: ResultLine) -> Mapping[str, object]:
    return {
        "row": line.row,
        "labels": dict(line.labels),
        "settings": list(line.cells[0].settings),
        "off_counts": line.off_counts,
        **joined(run.read_facts() for run in line.runs.values()),
        "runs": {str(seed): run.folder.name for seed, run in line.runs.items()},
        "values": {metric: {str(seed): v for seed, v in values.items()} for metric, values in line.values.items()},
        "paper": {
            metric: {name: {"value": n.text, "std": n.std, "note": n.note} for name, n in values.items()}
            for metric, values in line.paper.items()
        },
    }


def _title(outcome: Outcome) -> str:
    return f"{outcome.grid.id}: {outcome.grid.title}" + (" (stand-in)" if outcome.label else "")


def _how(outcome: Outcome) -> str:
    rules = {
        "best": "the evaluation with the best R@1 on the test set",
        "held_out": "the evaluation with the best R@1 on training classes that were held out",
        "last": "after the last epoch",
    }
    seeds = ", ".join(map(str, outcome.seeds))
    own = f" Settings: {' '.join(outcome.settings)}." if outcome.settings else ""
    return f"Mean ± standard deviation over seeds {seeds}; {rules[outcome.rule]}.{own}"


def _remarks(lines: Iterable[ResultLine]) -> list[str]:
    """Notes on the paper's numbers, each once, with the numbers that it concerns."""
    remarks: dict[str, dict[str, None]] = {}
    for line in lines:
        for metric, numbers in line.paper.items():
            for dataset, number in numbers.items():
                if number.note:
                    remarks.setdefault(number.note, {})[f"{line.row}, {dataset}, {metric}"] = None
    return [f"the paper's {'; '.join(where)}: {note}" for note, where in remarks.items()]


def _ours(line: ResultLine, metric: str, numbers: Mapping[str, Number]) -> str:
    values = line.values.get(metric)
    if values is None:
        return ""
    mean, std = _mean_std(values)
    if mean is None:
        return "-"
    digits = _digits(metric, numbers.values())
    text = f"{mean:.3g}" if metric == MINUTES else f"{mean:.{digits}f}"
    if std is None:
        return text
    return f"{text} ± {std:.2g}" if metric == MINUTES else f"{text} ± {std:.{digits}f}"


def _digits(metric: str, numbers: Iterable[Number]) -> int:
    """Number of decimals: as in the paper, but at least one (three for distances)."""
    least = 3 if metric in DISTANCES else 1
    return max([least, *(len(number.text.partition(".")[2]) for number in numbers)])


def _printed(number: Number | None) -> str:
    if number is None or not number.text:
        return "-"
    return f"{number.text} ± {number.std}" if number.std else number.text


def _difference(values: Mapping[int, float], number: Number | None) -> str:
    mean, _ = _mean_std(values)
    if mean is None or number is None or number.value is None:
        return "-"
    return f"{mean - number.value:+.{_digits(number.metric, [number])}f}"


def _mean_std(by_seed: Mapping[int, float]) -> tuple[float | None, float | None]:
    values = list(by_seed.values())
    if not values:
        return None, None
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


_SIGNS = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}"}
_SIGNS |= {"±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"$|$", "λ": r"$\lambda$"}
_SIGNS |= {"⁻": "$^{-}$", "⁺": "$^{+}$", "δ": r"$\delta$"}
_SIGNS |= {"ρ": r"$\rho$", "τ": r"$\tau$", "α": r"$\alpha$", "β": r"$\beta$", "−": "$-$"}


def _escape(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in text)
