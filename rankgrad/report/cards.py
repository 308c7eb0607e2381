"""Pictures of a page: queries with what was found for them, and pairs of classes that are confused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import charts
from .content import Content
from .images import Images
from .measured import Comparison, Measured
from .text import breakable, escaped, percent

REASONS = {
    "random": "random",
    "worst": "lowest AP",
    "best": "highest AP",
    "failures": "hardest failures: a wrong item far nearer than any right one",
    "disagree": "the runs disagree most",
}
CONFUSED = 30  # pairs of classes
RIGHT, WRONG = ("ok", "\N{CHECK MARK}", "right"), ("no", "\N{BALLOT X}", "wrong")


@dataclass(frozen=True, eq=False)
class Shelf:
    """Where pictures come from and go to: run and name of an image -> HTML that shows it.

    Attributes:
        runs: with their pictures; several may share them.
        images: the store of the page.
    """

    runs: Sequence[Content]
    images: Images
    _known: dict[tuple[int, str], str | None] = field(default_factory=dict)

    def named(self, run: int, name: str, budget: float = math.inf) -> str | None:
        """Class that shows an image of a run; None: it is not to be had, or would be one beyond so many bytes."""
        pictures = self.runs[run].pictures
        if pictures is None:
            return None
        key = id(pictures), name
        if key not in self._known:
            if self.images.size > budget:
                return None
            image = pictures.get(name)
            self._known[key] = None if image is None else self.images.add(image)
        return self._known[key]

    def show(self, run: int, name: str, label: str = "") -> str:
        """An element that shows the image; without a label it is hidden from screen readers."""
        kind = self.named(run, name)
        spoken = f'role="img" aria-label="{escaped(label)}"' if label else 'aria-hidden="true"'
        return f'<span class="pic {kind or "gone"}" {spoken}></span>'


def gallery(runs: Sequence[Content], found: Comparison, shelf: Shelf, budget: int) -> str:
    """One card per query, a strip of items per run, and what filters them.

    Args:
        runs: the runs.
        found: which queries to show, and what was found for them.
        shelf: of the pictures.
        budget: bytes of pictures after which no further card is begun.
    """
    order = _in_turn(found.shown)
    cards: list[str] = []
    kept: list[int] = []
    for place in order:
        if shelf.images.size > budget:
            break
        cards.append(_card(runs, found, place, shelf, f"q{len(cards)}"))
        kept.append(place)
    if not cards:
        return ""
    reasons = {reason: sum(place in kept for place in places) for reason, places in found.shown.items()}
    options = "".join(
        f'<option value="{reason}">{REASONS[reason]} ({count})</option>' for reason, count in reasons.items() if count
    )
    classes = sorted({_class(found, place) for place in kept})
    kinds = "".join(f'<option value="{escaped(name)}">{escaped(name)}</option>' for name in classes)
    total = f"{len(found.matching):,}"
    among = f"{len(found.sampled):,} of {total}" if len(found.sampled) < len(found.matching) else f"all {total}"
    several = sum(run is not None for run in found.runs) > 1
    return f"""<p class="lead">Each card: a query, then the items nearest to it, chosen among {among} queries.
<span class="ok"><b>\N{CHECK MARK}</b> solid frame: same class.</span>
<span class="no"><b>\N{BALLOT X}</b> dashed frame: another class.</span> Under an item: rank and similarity.
<span class="script">Arrow keys move from picture to picture, Enter enlarges.</span></p>
<div class="controls script"><label>Queries <select id="show-reason"><option value="">all {len(cards)}</option>
{options}</select></label>
<label>First item <select id="show-first"><option value="">right or wrong</option>
<option value="wrong">wrong{" in any run" if several else ""}</option>
<option value="right">right{" in all runs" if several else ""}</option></select></label>
<label>Class <select id="show-class"><option value="">all {len(classes)}</option>{kinds}</select></label>
<button type="button" id="show-all">Show all</button>
<span class="small muted" id="shown" role="status">{len(cards)} queries</span></div>
<div id="cards">{"".join(cards)}</div>"""


def _in_turn(shown: dict[str, list[int]]) -> list[int]:
    """Each query once, reasons in turn: whatever is cut off at the end, every reason is there."""
    longest = max(map(len, shown.values()), default=0)
    order = [places[turn] for turn in range(longest) for places in shown.values() if turn < len(places)]
    return list(dict.fromkeys(order))


def _class(found: Comparison, place: int) -> str:
    run = next(run for run in found.runs if run is not None)
    return run.space.class_names[int(run.space.labels[run.rows[place]])]


def _card(runs: Sequence[Content], found: Comparison, place: int, shelf: Shelf, mark: str) -> str:
    index, first = next((i, run) for i, run in enumerate(found.runs) if run is not None)
    name, kind = first.space.names[int(first.rows[place])], _class(found, place)
    reasons = " ".join(reason for reason, places in found.shown.items() if place in places)
    right = all(bool(run.correct[place, 0]) for run in found.runs if run is not None)
    strips, several = [], len(runs) > 1
    for i, run in enumerate(found.runs):
        if run is None:
            continue
        if several:
            name_of_run = f"<strong>{breakable(runs[i].name)}</strong>"
            strips.append(f'<p class="strip">{charts.key(i)} {name_of_run} {_quality(run, place)}</p>')
        strips.append(f"<ol>{_items(i, run, place, shelf)}</ol>")
    quality = "" if several else f"<span>{_quality(first, place)}</span>"
    return f"""<article class="query card" id="{mark}" data-why="{reasons}" data-class="{escaped(kind)}" \
data-first="{"right" if right else "wrong"}" aria-label="query of class {escaped(kind)}">
<div class="asked cell">{shelf.show(index, name, f"query of class {kind}")}<div><strong>{breakable(kind)}</strong>
<span class="muted">{breakable(name)}</span>{quality}</div></div>
<div class="strips">{"".join(strips)}</div></article>
"""


def _quality(run: Measured, place: int) -> str:
    ap, first = float(run.ranked.ap[place]), float(run.ranked.first[place])
    if math.isnan(ap):
        return "no relevant item"
    late = f', <span class="muted">first right item at rank {first:,.0f}</span>' if first > run.items.shape[1] else ""
    return f"AP {percent(ap)}{late}"


def _items(index: int, run: Measured, place: int, shelf: Shelf) -> str:
    _, labels, names = run.space.gallery
    drawn = []
    columns = (run.items[place].tolist(), run.scores[place].tolist(), run.correct[place].tolist())
    for rank, (item, score, correct) in enumerate(zip(*columns, strict=True), 1):
        kind, sign, word = RIGHT if correct else WRONG
        name = run.space.class_names[int(labels[item])]
        place_in_list = f'<span aria-hidden="true">{sign}</span> <span class="sr">{word}, rank</span> {rank}'
        title = escaped(f"{name}: {names[item]}")
        drawn.append(
            f'<li><div class="{kind} cell">{shelf.show(index, names[item])}'
            f'<p class="under"><b>{place_in_list}</b> <span class="score">{score:.3f}</span></p>'
            f'<p class="name" title="{title}">{breakable(name)}</p></div></li>'
        )
    return "".join(drawn)


def confusions(runs: Sequence[Content], found: Comparison, shelf: Shelf) -> str:
    """Table of the pairs of classes that are most often confused, with the most similar pair of images of each."""
    known = [(i, run) for i, run in enumerate(found.runs) if run is not None]
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for i, run in known:
        for pair in run.confusions:
            counts.setdefault((pair.first, pair.second), {})[i] = pair.count
    if not counts:
        return '<p class="lead">The nearest item of every query is of its own class.</p>' if known else ""
    ranking = sorted(counts, key=lambda pair: (-sum(counts[pair].values()), pair))[:CONFUSED]
    several = len(known) > 1
    if several:
        head = "".join(f"<th scope=col>{charts.key(i)}<br>{escaped(runs[i].name)}</th>" for i, _ in known)
    else:
        head = "<th scope=col>queries</th><th scope=col>of the first</th><th scope=col>of the second</th>"
    rows = []
    for names in ranking:
        i, space, pair = next(
            (i, run.space, p) for i, run in known for p in run.confusions if (p.first, p.second) == names
        )
        query, item = pair.example
        asked, got = space.names[query], space.gallery[2][item]
        swapped = space.class_names[int(space.labels[query])] != pair.first
        shown = [shelf.show(i, name) for name in ((got, asked) if swapped else (asked, got))]
        if several:
            cells = "".join(f"<td>{counts[names].get(j, 0):,}</td>" for j, _ in known)
        else:
            cells = f"<td>{pair.count:,}</td><td>{pair.forward:,}</td><td>{pair.backward:,}</td>"
        rows.append(
            f'<tr><th scope=row><span class="pair">{shown[0]}<span>{breakable(pair.first)}</span></span></th>'
            f'<th scope=row><span class="pair">{shown[1]}<span>{breakable(pair.second)}</span></span></th>{cells}</tr>'
        )
    wrong = {i: sum(pair.count for pair in run.confusions) for i, run in known}
    whose = {i: f"{escaped(runs[i].name)}: " if several else "" for i, _ in known}
    shares = "; ".join(f"{whose[i]}{wrong[i]:,} of {len(run.rows):,} queries" for i, run in known)
    return f"""<p class="lead">Pairs of classes by the number of queries of one whose nearest item is of the other
({shares} have a wrong nearest item). The pictures are the pair that is most alike.</p>
<div class="card scroll" role="region" aria-label="Table of confused classes" tabindex="0"><table class="confused">
<thead><tr><th scope=col>class</th><th scope=col class="text">taken for</th>{head}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>"""
