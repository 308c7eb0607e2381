r"""Near-linear sums of smooth steps: a few numbers per cell of the score axis replace the items of a row.

The forward pass needs f_i = sum_j step(b_j - a_i) for relevant scores a and other scores b. The backward pass needs
the gradient sum_i g_i step'(b_j - a_i) for every b_j, called "push" here. A smooth step changes little over a cell that
is much narrower than tau. So the moments sum_j u_j^k about the centre of the cell, k < TERMS, replace its items:

    items -> moments of cells -> weights on equidistant nodes -> (banded product with the step between nodes)
          -> values on nodes -> a polynomial for each cell -> relevant items

and the same steps back, with the slope. The cost per item does not depend on the number of relevant items. The idea
comes from fast multipole and non-uniform Fourier methods; this form of it is ours.

`relaxations.SupStep` is a sigmoid over all items, plus corrections that begin at two breaks of each relevant item: the
jump at b = a and the linear part at b = a + delta. Cells are cut exactly at these breaks into pieces. The correction
above a break is then a sum over pieces: a count, a sum of scores, and a part of the sigmoid that vanishes within a few
cells.

Arithmetic is float64. Errors are a few 1e-7 of each sum, even of a sum of many tiny steps, and of the largest push.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from ..relaxations import Sigmoid, SupStep
from .counting import count_below

# Width of a cell in tau; moments per cell; cells between two nodes; nodes to which a cell contributes.
WIDTH, TERMS, SPACING, STENCIL = 1 / 8, 4, 2, 12
# Distances in tau. REACH: items farther below a relevant item count 0 (sigmoid(-90) underflows in float32).
# SATURATED: farther above it the sigmoid is 1. FADED: sigmoid(-t) is 0 beyond, if every item counts at least 1 / 2.
REACH, SATURATED, FADED = 90.0, 40.0, 16.0
# Nodes computed by one product with a band of the step's matrix; chunks of items in a group of rows.
BLOCK, TOGETHER = 512, 32


def known(step: object) -> bool:
    """Whether cells can compute the sums of this step."""
    # with rho = 0, the rest of the sigmoid's slope beyond the joint, computed in float32, would not be negligible
    return isinstance(step, Sigmoid) or (isinstance(step, SupStep) and step.rho > 0)


def _joint(step: Sigmoid | SupStep) -> float:
    """Score difference where the linear part begins."""
    return step.joint if isinstance(step, SupStep) else 0.0


@dataclass(frozen=True)
class Line:
    """Equal cells 1 .. cells along the scores of each row. Cell 0 has all lower scores, cell cells + 1 all higher ones.

    Attributes:
        origin: [row, 1] float64, score at the centre of cell 0.
        density: number of cells per score unit.
        cells: number of cells of the longest row, a multiple of SPACING.
    """

    origin: Tensor
    density: float
    cells: int

    @classmethod
    def over(cls, step: Sigmoid | SupStep, own: Tensor, low: Tensor, high: Tensor) -> Line | None:
        """Cells for the relevant scores and for the other scores in their reach; None if the range is infinite.

        Args:
            step: gives the temperature and the reach.
            own: [row, slot] relevant scores, +inf in empty slots; every row has at least one.
            low: [row] lower bound of the other scores; -inf if unknown.
            high: [row] upper bound of the other scores.
        """
        least = own.amin(1).double()
        most = torch.where(own < torch.inf, own, -torch.inf).amax(1).double()
        first = torch.maximum(least - REACH * step.tau, low.double()).minimum(least)
        last = torch.minimum(most + (_joint(step) + REACH * step.tau), high.double()).maximum(most)
        density = 1 / (WIDTH * step.tau)
        longest = float(((last - first) * density).max())
        if not math.isfinite(longest):
            return None
        return cls((first - 1 / density).unsqueeze(1), density, SPACING * (math.ceil((longest + 1) / SPACING)))

    def part(self, rows: slice) -> Line:
        """The cells of some of the rows."""
        return replace(self, origin=self.origin[rows])

    def position(self, scores: Tensor) -> Tensor:
        """[row, ...] float64, distance from the centre of cell 0, in cells."""
        return scores.to(torch.float64, copy=True).sub_(self.origin).mul_(self.density)

    def place(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Cell (integers as float64) and distance from its centre: at most 1/2, except in the open last cell."""
        position = self.position(scores).clamp_(min=0)
        cell = position.round().clamp_(max=self.cells + 1)
        return cell, position.sub_(cell)


# ------------------------------------------------------------------------------------------- between cells and nodes


@lru_cache
def _points() -> Tensor:
    """[point] Chebyshev points of a cell."""
    turns = [math.pi * (point + 0.5) / TERMS for point in range(TERMS)]
    return torch.tensor([math.cos(turn) / 2 for turn in turns], dtype=torch.float64, device="cpu")


@lru_cache
def _coefficients(device: torch.device) -> Tensor:
    """[term, point] matrix: values of a function at the points of a cell -> coefficients of its polynomial."""
    inverse: Tensor = torch.linalg.inv(torch.vander(_points(), increasing=True))
    return inverse.to(device)


@lru_cache
def _stencil(device: torch.device) -> Tensor:
    """[node, term and cell] Lagrange functions of the nodes around a group of SPACING cells, as polynomials in each."""
    nodes = torch.arange(STENCIL, dtype=torch.float64, device="cpu") - (STENCIL - 1) / 2
    cells = torch.arange(SPACING, dtype=torch.float64, device="cpu") - (SPACING - 1) / 2
    points = (_points().unsqueeze(1) + cells).flatten() / SPACING
    factors = (points.unsqueeze(1) - nodes) / (nodes.unsqueeze(1) - nodes).fill_diagonal_(1).unsqueeze(1)
    factors.diagonal(dim1=0, dim2=2).fill_(1)  # node, point, other node
    values = factors.prod(2).view(STENCIL, TERMS, SPACING)
    polynomials: Tensor = torch.einsum("npc,tp->ntc", values, _coefficients(torch.device("cpu")))
    return polynomials.reshape(STENCIL, -1).to(device)


def _to_nodes(moments: Tensor) -> Tensor:
    """[row, node] weights with the same effect on smooth functions as items with these moments [term, row, cell]."""
    terms, rows, cells = moments.shape
    grouped = moments.view(terms, rows, -1, SPACING).permute(0, 3, 1, 2).reshape(terms * SPACING, -1)
    shares = (_stencil(moments.device) @ grouped).view(STENCIL, rows, -1)
    weights = moments.new_zeros(rows, cells // SPACING + STENCIL - 1)
    for node, share in enumerate(shares):
        weights[:, node : node + share.shape[1]] += share
    return weights


def _from_nodes(values: Tensor) -> Tensor:
    """[term, row, cell] polynomials of the cells through values on nodes [row, node]: the transpose of `_to_nodes`."""
    rows, groups = len(values), values.shape[1] - STENCIL + 1
    around = values.unfold(1, groups, 1).transpose(0, 1).reshape(STENCIL, -1)
    grouped = (_stencil(values.device).T @ around).view(TERMS, SPACING, rows, groups)
    return grouped.permute(0, 2, 3, 1).reshape(TERMS, rows, -1)


def _reaches(slope: bool) -> tuple[int, int]:
    """Number of nodes to use below and above a relevant item. Beyond them, sigmoid is 0 or 1 and its slope 0."""
    below, saturated = (math.ceil(reach / (SPACING * WIDTH)) for reach in (REACH, SATURATED))
    return below, below if slope else saturated


@lru_cache
def _band(slope: bool, device: torch.device) -> Tensor:
    """[source, target] sigmoid, or its slope, between the nodes in reach of a block and the nodes of the block."""
    below, above = _reaches(slope)
    distance = SPACING * WIDTH * torch.arange(-below, above + 1, dtype=torch.float64, device=device)
    value = distance.sigmoid()
    if slope:
        value *= (-distance).sigmoid()
    return F.pad(value, (BLOCK - 1, BLOCK - 1)).unfold(0, BLOCK, 1).flip(1)


def _between_nodes(weights: Tensor, slope: bool) -> Tensor:
    """[row, node] sum over all nodes of weight times sigmoid (or its slope) of their distance from this node."""
    below, above = _reaches(slope)
    band, nodes = _band(slope, weights.device), weights.shape[1]
    if nodes <= BLOCK:
        values = weights @ band[below : below + nodes, :nodes]
    else:
        blocks = -(-nodes // BLOCK)
        padded = F.pad(weights, (below, above + blocks * BLOCK - nodes))
        windows = padded.unfold(1, len(band), BLOCK).reshape(-1, len(band))
        values = (windows @ band).view(len(weights), -1)[:, :nodes]
    if not slope and nodes > above + 1:  # beyond the band the sigmoid is 1
        values[:, : nodes - above - 1] += weights.flip(1).cumsum(1).flip(1)[:, above + 1 :]
    return values


# ------------------------------------------------------------------------------------------- between items and cells


def _moments(index: Tensor, offset: Tensor, size: int, weight: Tensor | None = None) -> Tensor:
    """[term, size] sum of weight times offset^k over the items with this index."""
    sums = [torch.bincount(index, weight, size).double()]
    power = offset if weight is None else weight * offset
    for term in range(1, TERMS):
        sums.append(torch.bincount(index, power, size))
        if term + 1 < TERMS:
            power = power * offset
    return torch.stack(sums)


def _evaluated(polynomials: Tensor, index: Tensor, offset: Tensor) -> Tensor:
    """[item] value at the offset of the polynomial [term, size] with this index."""
    value = polynomials[-1].index_select(0, index)
    for term in polynomials[:-1].flip(0):
        value.mul_(offset).add_(term.index_select(0, index))
    return value


def _flat(cell: Tensor, size: int) -> Tensor:
    """Positions of the cells [row, ...] in one list of all rows with `size` entries per row."""
    rows = torch.arange(len(cell), dtype=torch.int32, device=cell.device) * size
    return (cell.to(torch.int32) + rows.view(-1, *[1] * (cell.dim() - 1))).flatten()


class _Cuts:
    """Sorted breaks of the axis, which cut the cells of each row into pieces.

    The piece of an item is its cell plus the number of breaks below it. Both grow along the axis, so every cell and
    every break begins a new piece.

    Attributes:
        order: [row, break] long, indices that sort the given breaks.
        cell: [row, break] long, cell of each sorted break, ascending.
        before: [row, cell] long, number of breaks in earlier cells; one entry more than cells.
        size: number of pieces of a row.
    """

    def __init__(self, line: Line, at: Tensor) -> None:
        ordered, self.order = at.sort(dim=1)
        self.negated = -ordered.flip(1)
        self.cell = line.place(ordered)[0].long()
        inside = torch.zeros(len(at), line.cells + 2, dtype=torch.long, device=at.device)
        self.before = F.pad(inside.scatter_add_(1, self.cell, torch.ones_like(self.cell)).cumsum(1), (1, 0))
        self.size = line.cells + 2 + at.shape[1]

    @property
    def start(self) -> Tensor:
        """[row, cell] long, first piece of a cell; one entry more than cells."""
        return self.before + torch.arange(self.before.shape[1], device=self.before.device)

    @property
    def rank(self) -> Tensor:
        """[row, break] long, number of breaks below each given break."""
        places = torch.arange(self.order.shape[1], device=self.order.device).expand_as(self.order)
        return torch.empty_like(self.order).scatter_(1, self.order, places)

    def below(self, scores: Tensor, rows: slice) -> Tensor:
        """[row, item] int32, number of breaks below each score."""
        reached, _, _ = count_below(self.negated[rows], scores, right=True)
        return self.negated.shape[1] - reached.int()

    def per_piece(self) -> tuple[Tensor, Tensor]:
        """[row, piece] long: the cell of each piece, and the number of breaks below it."""
        begins = torch.zeros(len(self.before), self.size, dtype=torch.long, device=self.before.device)
        begins.scatter_(1, self.start[:, 1:-1], 1)
        cell = begins.cumsum(1)
        return cell, torch.arange(self.size, device=cell.device) - cell


def _rounded_down(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Largest number of this dtype up to the float64 value: each number of the dtype is above both or above none."""
    near = values.to(dtype)
    return torch.where(near.double() > values, near.nextafter(near.new_tensor(-torch.inf)), near)


def _joint_breaks(own: Tensor, step: SupStep) -> Tensor:
    """For each relevant score, the largest score whose difference to it, rounded to float64, is at most the joint."""
    exact, joint = own.double(), step.joint
    near = exact + joint
    back = near - exact
    error = (exact - (near - back)) + (joint - back)  # rounding error of the sum (Knuth's two-sum)
    room = error + (math.nextafter(joint, math.inf) - joint) / 2  # plus half a unit: rounding the difference
    at = near + room
    at = torch.where(at - exact > joint, at.nextafter(at.new_tensor(-torch.inf)), at)
    return _rounded_down(at, own.dtype)


def _tie_breaks(own: Tensor, step: SupStep) -> Tensor:
    """Scores at which the jump is: an item counts from a tie on ("upper"), or only above it."""
    return own.nextafter(own.new_tensor(-torch.inf)) if step.tie == "upper" else own


def _rectangles(rows: int, items: int, chunk: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a matrix with about `chunk` elements each."""
    tall, wide = max(chunk // max(items, 1), 1), max(min(chunk, items), 1)
    for row in range(0, rows, tall):
        for item in range(0, items, wide):
            yield slice(row, min(row + tall, rows)), slice(item, min(item + wide, items))


# ------------------------------------------------------------------------------------------------------ public class


@dataclass(frozen=True)
class Cells:
    """Sums of a step over the cells of a batch, for one group of rows at a time.

    Args:
        step: `Sigmoid` or `SupStep`.
        line: the cells.
        own: [row, slot] relevant scores, +inf in empty slots; every row has at least one.
        chunk: number of items processed at once.

    >>> own, rest = torch.tensor([[0.5]]), torch.tensor([[0.9, 0.5, 0.1]])
    >>> line = Line.over(Sigmoid(0.1), own, rest.amin(1), rest.amax(1))
    >>> Cells(Sigmoid(0.1), line, own).counts(slice(0, 1), rest)[0]
    tensor([[1.5000]], dtype=torch.float64)
    """

    step: Sigmoid | SupStep
    line: Line
    own: Tensor
    chunk: int = 2**17

    def groups(self, items: int) -> Iterator[slice]:
        """Groups of rows whose tables and items are processed together."""
        tables = self.chunk // (self.line.cells + 2 * self.own.shape[1])
        rows = max(min(tables, TOGETHER * self.chunk // max(items, 1)), 1)
        return (slice(start, min(start + rows, len(self.own))) for start in range(0, len(self.own), rows))

    def counts(self, rows: slice, rest: Tensor) -> tuple[Tensor, Tensor]:
        """[row, slot] float64, sum_j step(b_j - a_i) and sum_j step'(b_j - a_i), of a group.

        Args:
            rows: the group.
            rest: [row, item] other scores of the group, of the dtype of `own`; -inf where absent.
        """
        step, line, own = self.step, self.line.part(rows), self._present(rows)
        if isinstance(step, SupStep):
            cuts = _Cuts(line, torch.cat([_joint_breaks(own, step), _tie_breaks(own, step)], 1))
            value, slope = _cut_counts(step, line, own, cuts, self._gathered(line, cuts, rest))
        else:
            value, slope = _smooth_counts(line, own, self._gathered(line, None, rest))
            slope = slope / step.tau
        missing = (0, self.own.shape[1] - own.shape[1])
        return F.pad(value, missing), F.pad(slope, missing)

    def push(self, rows: slice, rest: Tensor, weight: Tensor, into: Tensor) -> None:
        """Write sum_i weight_i step'(b_j - a_i) of a group into a tensor like `rest`.

        Args:
            rows: the group.
            rest: as for `counts`.
            weight: [row, slot] weights of the group, 0 in empty slots.
            into: [row, item], the result.
        """
        step, line, own, cuts = self.step, self.line.part(rows), self._present(rows), None
        weight = weight[:, : own.shape[1]].double()
        polynomials = F.pad(_smooth_push(line, own, weight), (1, 1))
        if isinstance(step, SupStep):
            cuts = _Cuts(line, _joint_breaks(own, step))
            polynomials = _cut_push(step, line, own, cuts, weight, polynomials)
        table = (polynomials / step.tau).to(into.dtype)
        for part, items, index, offset in self._pieces(line, cuts, rest):
            # only the open last cell has large offsets, and its polynomial is constant
            offset = offset.clamp_(max=1).to(into.dtype)
            into[part, items] = _evaluated(table[:, part].flatten(1), index, offset).view(part.stop - part.start, -1)

    def _present(self, rows: slice) -> Tensor:
        """Relevant scores of a group, in as few slots as possible. Empty slots repeat a score, so all are finite."""
        own = self.own[rows]
        present = own < torch.inf
        return torch.where(present, own, own.amin(1, keepdim=True))[:, : int(present.sum(1).max())]

    def _pieces(self, line: Line, cuts: _Cuts | None, rest: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
        """Rectangles of the items: rows, items, flat index of the piece, offset from the centre of the cell."""
        for part, items in _rectangles(len(rest), rest.shape[1], self.chunk):
            scores = rest[part, items]
            cell, offset = line.part(part).place(scores)
            if cuts is None:
                yield part, items, _flat(cell, line.cells + 2), offset.flatten()
            else:
                index = _flat(cell, cuts.size).add_(cuts.below(scores, part).flatten())
                yield part, items, index, offset.flatten()

    def _gathered(self, line: Line, cuts: _Cuts | None, rest: Tensor) -> Tensor:
        """[term, row, piece] moments of the items."""
        size = line.cells + 2 if cuts is None else cuts.size
        sums = line.origin.new_zeros(TERMS, len(rest), size)
        for part, _, index, offset in self._pieces(line, cuts, rest):
            tall = part.stop - part.start
            sums[:, part] += _moments(index, offset, tall * size).view(TERMS, tall, size)
        return sums


def _each(index: Tensor) -> Tensor:
    """An index [row, place] expanded for `gather` from each term of [term, row, ...]."""
    return index.expand(TERMS, -1, -1)


def _cut_counts(step: SupStep, line: Line, own: Tensor, cuts: _Cuts, pieces: Tensor) -> tuple[Tensor, Tensor]:
    """[row, slot] sums of `SupStep` and of its slope.

    Args:
        step: the step.
        line: the cells.
        own: [row, slot] relevant scores.
        cuts: at the joints of all slots, then at their ties.
        pieces: [term, row, piece] moments of the items.
    """
    slots = own.shape[1]
    before = F.pad(pieces.cumsum(2), (1, 0))  # moments of all earlier pieces
    moments = before.gather(2, _each(cuts.start)).diff(dim=2)
    rank = cuts.rank
    cell = cuts.cell.gather(1, rank)
    first = cell + rank + 1  # the piece that begins at the break
    above = before[0, :, -1:] - before[0].gather(1, first)
    joint_above, tie_above = above[:, :slots], above[:, slots:]
    cell, first = cell[:, :slots], first[:, :slots]
    last = cuts.start.gather(1, cell + 1)
    partial = before.gather(2, _each(last)) - before.gather(2, _each(first))  # above the joint in its own cell

    # sum of the scores above the joint, as distances from the joint in cells
    centre = torch.arange(line.cells + 2, dtype=torch.float64, device=own.device)
    position = F.pad((centre * moments[0] + moments[1]).flip(1).cumsum(1).flip(1), (0, 1))  # this cell and later ones
    linear = position.gather(1, cell + 1) + cell * partial[0] + partial[1]
    linear -= joint_above * line.position(own.double() + step.joint)

    jump = 0.0 if step.offset is None else step.offset - step.at_joint - step.start
    smooth, smooth_slope = _smooth_counts(line, own, moments)
    faded, faded_slope = _faded_counts(step, line, own, cell, moments, partial)
    # above the joint the step has sigmoid(joint) = 1 - sigmoid(-joint), but the smooth sum has 1 - sigmoid(-t)
    value = smooth + faded - (1 - step.at_joint) * joint_above
    value += step.start * tie_above + jump * joint_above + step.rho / line.density * linear
    return value, (smooth_slope - faded_slope) / step.tau + step.rho * joint_above


def _cut_push(step: SupStep, line: Line, own: Tensor, cuts: _Cuts, weight: Tensor, smooth: Tensor) -> Tensor:
    """[term, row, piece] polynomials of sum_i weight_i slope, times tau.

    Args:
        step: the step.
        line: the cells.
        own: [row, slot] relevant scores.
        cuts: at the joints.
        weight: [row, slot].
        smooth: [term, row, cell] the polynomials of the sigmoid alone.
    """
    earlier_cells, own_cell = _faded_push(step, line, own, cuts.cell.gather(1, cuts.rank), weight)
    own_cell = _exclusive(own_cell.gather(2, _each(cuts.order)))  # sums over the first breaks of a row
    linear = _exclusive(weight.gather(1, cuts.order))
    cell, below = cuts.per_piece()
    here = own_cell.gather(2, _each(below)) - own_cell.gather(2, _each(cuts.before.gather(1, cell)))
    polynomials = (smooth - earlier_cells).gather(2, _each(cell)) - here
    polynomials[0] += step.rho * step.tau * linear.gather(1, below)
    return polynomials


def _exclusive(values: Tensor) -> Tensor:
    """Cumulative sums along the last dimension, with a 0 in front."""
    return F.pad(values.cumsum(-1), (1, 0))


def _smooth_counts(line: Line, own: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """[row, slot] sums of sigmoid(t / tau) and of tau times its slope over items with these moments."""
    weights = _to_nodes(moments[:, :, 1:-1])
    cell, offset = line.place(own)
    index = _flat(cell - 1, line.cells)
    value, slope = (
        _evaluated(_from_nodes(_between_nodes(weights, kind)).flatten(1), index, offset.flatten()).view_as(offset)
        for kind in (False, True)
    )
    return value + moments[0, :, -1:], slope


def _smooth_push(line: Line, own: Tensor, weight: Tensor) -> Tensor:
    """[term, row, cell] polynomials of sum_i weight_i sigmoid'(t / tau), cells from 1 on."""
    cell, offset = line.place(own)
    index = _flat(cell - 1, line.cells)
    moments = _moments(index, offset.flatten(), len(own) * line.cells, weight.flatten())
    weights = _to_nodes(moments.view(TERMS, len(own), line.cells))
    # the slope is an even function, so the same product serves both directions
    return _from_nodes(_between_nodes(weights, True))


# Above the joint, sigmoid(-t / tau) is small compared with the count of an item there, at least 1 / 2, and its slope is
# small compared with rho. So float32 is exact enough.


def _reach(step: SupStep) -> int:
    """Number of cells, from the cell of the joint on, in which sigmoid(-t / tau) is not negligible."""
    faded = FADED - min(math.log(step.rho * step.tau), 0) - step.joint / step.tau
    return max(math.ceil(faded / WIDTH), 0) + 1


def _faded(line: Line, own: Tensor, cell: Tensor, reach: int) -> Tensor:
    """[point, row, slot, distance] float32, sigmoid(-t / tau) at the points of the cells from `cell` [row, slot] on."""
    points = _points().to(own.device).view(-1, 1, 1, 1) + torch.arange(reach, device=own.device)
    position = (line.position(own) - cell).unsqueeze(2).float()
    return (position - points.float()).mul_(WIDTH).sigmoid_()


def _slots(own: Tensor, reach: int) -> Iterator[slice]:
    """Groups of slots that are processed at once."""
    wide = max(2**17 // (TERMS * reach * len(own)), 1)
    return (slice(start, start + wide) for start in range(0, own.shape[1], wide))


def _faded_counts(
    step: SupStep, line: Line, own: Tensor, cell: Tensor, moments: Tensor, partial: Tensor
) -> tuple[Tensor, Tensor]:
    """[row, slot] sums of sigmoid(-t / tau), and of tau times the size of its slope, over the items above the joint.

    Args:
        step: gives the joint and the temperature.
        line: the cells.
        own: [row, slot] relevant scores.
        cell: [row, slot] long, cell of the joint.
        moments: [term, row, cell] moments of all items.
        partial: [term, row, slot] moments of the items above the joint in the cell of the joint.
    """
    reach = _reach(step)
    at_points = _coefficients(own.device).T
    nodes = (at_points @ moments[:, :, :-1].reshape(TERMS, -1)).view(TERMS, len(own), -1)
    windows = F.pad(nodes, (0, reach + 1)).float().unfold(2, reach, 1)
    own_cell = (at_points @ partial.reshape(TERMS, -1)).view(partial.shape).float()
    row = torch.arange(len(own), device=own.device).unsqueeze(1)
    counts = []
    for slots in _slots(own, reach):
        weights = windows[:, row, cell[:, slots]]
        weights[..., 0] = own_cell[:, :, slots]
        value = _faded(line, own[:, slots], cell[:, slots], reach)
        weights.mul_(value)
        total = weights.sum((0, 3))
        counts.append(torch.stack([total, total - weights.mul_(value).sum((0, 3))]))
    value, slope = torch.cat(counts, 2).double()
    return value, slope


def _faded_push(step: SupStep, line: Line, own: Tensor, cell: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Polynomials of sum_i weight_i sigmoid'(t / tau) over the relevant items whose joint is below.

    Returns:
        [term, row, cell] sum over joints in earlier cells; [term, row, slot] the term of each joint in its own cell.
    """
    reach = _reach(step)
    size = line.cells + 1 + reach  # the part beyond the last cell is dropped below
    nodes, within = torch.zeros(TERMS, len(own) * size, dtype=torch.float32, device=own.device), []
    for slots in _slots(own, reach):
        value = _faded(line, own[:, slots], cell[:, slots], reach)
        value.addcmul_(value, value, value=-1).mul_(weight[:, slots].unsqueeze(2).float())
        within.append(value[..., 0].double())
        value[..., 0] = 0
        target = _flat(cell[:, slots].unsqueeze(2) + torch.arange(reach, device=own.device), size).long()
        for into, values in zip(nodes, value.reshape(TERMS, -1), strict=True):
            into.scatter_add_(0, target, values)
    near = torch.cat(within, 2)
    coefficients = _coefficients(own.device)
    far = (coefficients @ nodes.double()).view(TERMS, len(own), size)[:, :, : line.cells + 1]
    return F.pad(far, (0, 1)), (coefficients @ near.reshape(TERMS, -1)).view(near.shape)
