"""Tables of a page: metrics with their intervals, classes, settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..evaluation import DISTANCES, Report, Row
from ..measures import meaning
from . import charts
from .content import Content
from .text import DASH, breakable, escaped, flat, percent, shown

# The first are the table; the rest stands behind "all other metrics".
FIRST = ("R@1", "R@4", "mAP@R", "AP", "NMI")
TILES = ("R@1", "mAP@R", "AP")
FEW = 12  # rows that need no filter
READABLE = 50  # rows of a table of classes that are in the page as they are; a script shows the others


# ------------------------------------------------------------------------------------------------------- results


def tiles(runs: Sequence[Content]) -> str:
    """The headline metrics, large; of several runs one below the other, the best marked."""
    found = []
    for name in TILES:
        values = [_values(run).get(name, math.nan) for run in runs]
        if all(map(math.isnan, values)):
            continue
        body = _one_tile(name, runs[0]) if len(runs) == 1 else _ranking(name, runs, values)
        found.append(f'<div class="tile card"><h3>{escaped(name)}</h3>{body}</div>')
    return f'<div class="tiles">{"".join(found)}</div>' if found else ""


def _values(run: Content) -> Mapping[str, float]:
    """Metrics of the evaluation after training, or of the last one before that."""
    if run.after is not None:
        return run.after.values
    return run.latest[1] if run.latest is not None else {}


def _interval(run: Content, name: str) -> tuple[float, float] | None:
    return run.after.intervals.get(name) if run.after is not None else None


def _one_tile(name: str, run: Content) -> str:
    around = _interval(run, name)
    known = run.before.values.get(name, math.nan) if run.before is not None else math.nan
    small = []
    if around is not None:
        small.append(f"{percent(around[0])} to {percent(around[1])}")
    if not math.isnan(known):
        small.append(f"{percent(known)} before training")
    elif run.after is None and run.latest is not None:
        small.append(f"after {run.latest[0]:,} steps")
    big = f"<b>{percent(_values(run)[name])}<small> %</small></b>"
    return big + "".join(f'<span class="muted">{text}</span>' for text in small)


def _ranking(name: str, runs: Sequence[Content], values: Sequence[float]) -> str:
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    rows = []
    for kind, (run, value) in enumerate(zip(runs, values, strict=True)):
        around = _interval(run, name)
        small = f"{percent(around[0])} to {percent(around[1])}" if around is not None else ""
        mark = ' class="best"' if value == best else ""
        rows.append(
            f"<li{mark}>{charts.key(kind)}<span>{breakable(run.name)}</span><b>{percent(value)}</b>"
            f'<span class="muted small">{small}</span></li>'
        )
    return f'<ol class="ranking">{"".join(rows)}</ol>'


def metrics_table(runs: Sequence[Content]) -> str:
    """All metrics of the runs with their intervals; of a single run also before training, and the change."""
    names = list(dict.fromkeys(name for run in runs for name in _values(run)))
    first, others = [name for name in FIRST if name in names], [name for name in names if name not in FIRST]
    if not names:
        return ""
    table = f'<div class="card">{_metrics(first or others, runs, "Table of metrics")}</div>'
    if first and others:
        more = _metrics(others, runs, "Table of all other metrics")
        table += f'<details class="card more"><summary>All other metrics</summary>{more}</details>'
    return table


def _metrics(names: Sequence[str], runs: Sequence[Content], label: str) -> str:
    if len(runs) == 1:
        both = runs[0].before is not None
        head = ("<th scope=col>before</th>" if both else "") + "<th scope=col>after</th>"
        head += "<th scope=col>change</th>" if both else ""
        signs = f"{_square('before')}before {_square('s0')}after" if both else ""
    else:
        head = "".join(f"<th scope=col>{charts.key(i)}<br>{escaped(run.name)}</th>" for i, run in enumerate(runs))
        signs = ""
    rows = "".join(_metric_row(name, runs) for name in names)
    return f"""<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>
<thead><tr><th scope=col>metric</th>{head}<th scope=col class="plot text">0 to 100 {signs}</th></tr></thead>
<tbody>{rows}</tbody></table></div>"""


def _square(kind: str) -> str:
    square = f'<rect class="at {kind}" width="10" height="10" />'
    return f'<svg class="square" viewBox="0 0 10 10" aria-hidden="true">{square}</svg>'


def _metric_row(name: str, runs: Sequence[Content]) -> str:
    told = f'<span class="muted small">{escaped(meaning(name))}</span>' if meaning(name) else ""
    marks: list[tuple[str, float, tuple[float, float] | None]] = []
    cells = ""
    before = runs[0].before if len(runs) == 1 else None
    if before is not None:
        cells += _cell(name, before.values.get(name), before.intervals.get(name))
        marks.append(("before", before.values.get(name, math.nan), before.intervals.get(name)))
    for kind, run in enumerate(runs):
        value = _values(run).get(name)
        cells += _cell(name, value, _interval(run, name))
        marks.append((f"s{kind}", math.nan if value is None else value, _interval(run, name)))
    if before is not None:
        gain = _values(runs[0]).get(name, math.nan) - before.values.get(name, math.nan)
        sign = "+" if gain > 0 else "\N{MINUS SIGN}" if gain < 0 else ""
        cells += f"<td>{sign}{shown(name, abs(gain))}</td>"
    plot = "" if name in DISTANCES else charts.intervals(marks)
    return f'<tr><th scope=row>{escaped(name)}{told}</th>{cells}<td class="plot">{plot}</td></tr>'


def _cell(name: str, value: float | None, around: tuple[float, float] | None) -> str:
    if value is None:
        return f"<td>{DASH}</td>"
    small = ""
    if around is not None:
        small = f'<span class="muted">{shown(name, around[0])} to {shown(name, around[1])}</span>'
    return f"<td>{shown(name, value)}{small}</td>"


def counted(report: Report) -> str:
    """Queries, items, classes, ... in one line."""
    return escaped(" · ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in report.counts.items()))


# ------------------------------------------------------------------------------------------------------- classes


def class_table(
    runs: Sequence[Content], kind: str, tables: Sequence[Sequence[Row]]
) -> tuple[str, dict[str, Any]] | None:
    """A table by class or by super-label that a script sorts, filters and turns the pages of.

    Without a script it shows the rows of lowest AP.

    Args:
        runs: whose rows they are.
        kind: "class" or "super-label".
        tables: rows of each run, empty for a run that has none.

    Returns:
        (HTML, the whole table for the script); None if there is nothing to show.
    """
    metrics = [name for name in FIRST if any(row.get(name) is not None for table in tables for row in table)]
    if not metrics:
        return None
    by = "AP" if "AP" in metrics else metrics[0]
    if len(runs) == 1:
        columns = [(0, name) for name in (*(name for name in metrics if name != by), by)]
        heads = [name for _, name in columns]
    else:
        wanted = [by, *(name for name in ("R@1",) if name in metrics and name != by)]
        columns = [(run, name) for name in wanted for run, table in enumerate(tables) if table]
        heads = [f"{name} {runs[run].name}" for run, name in columns]
    named: list[dict[str, Row]] = [{str(row["name"]): row for row in table} for table in tables]
    rows = []
    for name in dict.fromkeys(name for table in named for name in table):
        here = [table.get(name) for table in named]
        queries = next(int(row["queries"]) for row in here if row is not None)
        found = [None if (row := here[run]) is None else row.get(metric) for run, metric in columns]
        values: list[Any] = [None if value is None else round(float(value), 4) for value in found]
        if len(runs) > 1:
            known = [v for v, (_, metric) in zip(values, columns, strict=True) if metric == by and v is not None]
            values.append(round(max(known) - min(known), 4) if known else None)
        rows.append([name, queries, *values])
    if len(runs) > 1:
        heads.append(f"range of {by}")
    lead = 2 + (len(columns) - 1 if len(runs) == 1 else 0)  # the column that the table begins sorted by
    rows.sort(key=lambda row: (row[lead] is None, row[lead] if row[lead] is not None else 0.0, row[0]))
    names = [kind, "queries", *heads]
    bars = lead if len(runs) == 1 else -1
    body = "".join(_class_row(row, bars) for row in rows[:READABLE])
    head = "".join(
        f"<th scope=col{' aria-sort=ascending' if place == lead else ''}><span>{escaped(name)}</span></th>"
        for place, name in enumerate(names)
    )
    hidden = f"The {READABLE} of {len(rows):,} with the lowest {by}." if len(rows) > READABLE else f"All {len(rows):,}."
    html = f"""<div class="table" data-table="{kind}">
<div class="controls script"{"" if len(rows) > FEW else " hidden"}>
<label>Filter <input type="search" name="filter" placeholder="part of a name" spellcheck="false"></label>
<span class="pager"><button type="button" class="back" aria-label="previous rows">\N{LEFTWARDS ARROW}</button>
<button type="button" class="on" aria-label="next rows">\N{RIGHTWARDS ARROW}</button></span></div>
<p class="small muted status" role="status">{hidden}</p>
<div class="card scroll" role="region" aria-label="Table by {kind}" tabindex="0"><table>
<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"""
    return html, {"columns": names, "rows": rows, "sorted": lead, "bars": bars, "page": READABLE}


def _class_row(row: Sequence[Any], bars: int) -> str:
    cells = []
    for place, value in enumerate(row):
        if place == 0:
            cells.append(f"<th scope=row>{breakable(value)}</th>")
        elif place == 1:
            cells.append(f"<td>{value:,}</td>")
        else:
            text = DASH if value is None else percent(value)
            cells.append(f"<td>{text}{charts.bar(value) if place == bars and value is not None else ''}</td>")
    return f"<tr>{''.join(cells)}</tr>"


# ------------------------------------------------------------------------------------------------- configuration


def configuration(runs: Sequence[Content]) -> str:
    """Settings: of several runs first those that differ, then all."""
    tables = [_settings(run) for run in runs]
    if not any(tables):
        return ""
    everything = sorted(dict.fromkeys(key for table in tables for key in table), key=lambda key: ": " in key)
    if len(runs) == 1:
        table = _setting_table(_rows(everything, tables), runs)
        return f'<details class="card"><summary>Every setting of this run</summary>{table}</details>'
    differ = [key for key in everything if len({escaped(table.get(key, DASH)) for table in tables}) > 1]
    same = [key for key in everything if key not in differ]
    first = "<p>These runs have the same settings.</p>"
    if differ:
        table = _setting_table(_rows(differ, tables), runs)
        first = f'<div class="card scroll" role="region" aria-label="Settings that differ" tabindex="0">{table}</div>'
    rest = _setting_table(_rows(same, tables[:1]), runs[:1])
    summary = f"<summary>{len(same)} settings that are the same</summary>"
    return f'<h3 class="group">What differs</h3>{first}<details class="card more">{summary}{rest}</details>'


def _settings(run: Content) -> dict[str, object]:
    found = flat({key: value for key, value in run.config.items() if key not in ("out", "resume")})
    found |= {f"run: {key}": value for key, value in flat(run.facts).items()}
    if run.after is not None:
        found |= {f"evaluation: {key}": value for key, value in flat(run.after.settings).items()}
    return found


def _rows(keys: Sequence[str], tables: Sequence[Mapping[str, object]]) -> str:
    return "".join(
        f'<tr><th scope=row class="mono">{breakable(key)}</th>'
        + "".join(f'<td class="mono">{breakable(table[key]) if key in table else DASH}</td>' for table in tables)
        + "</tr>"
        for key in keys
    )


def _setting_table(body: str, runs: Sequence[Content]) -> str:
    head = ""
    if len(runs) > 1:
        names = "".join(f"<th scope=col>{charts.key(i)} {breakable(run.name)}</th>" for i, run in enumerate(runs))
        head = f"<thead><tr><th scope=col>setting</th>{names}</tr></thead>"
    return f'<table class="settings">{head}<tbody>{body}</tbody></table>'
