"""SoDeep: a network that has learned to sort. It is trained once and stored; the error of its ranks is measured."""

from .judge import RankError, cosines, rank_errors, sigmoid_ranks, table
from .networks import ABSENT, ARCHITECTURES, Architecture, Learned, Sorter, unit_range
from .store import FORMAT, default_folder, load, load_sorter, read_sorter, sorter_file
from .training import KINDS, Recipe, draw, draw_valid, train_sorter

__all__ = [
    "ABSENT",
    "ARCHITECTURES",
    "FORMAT",
    "KINDS",
    "Architecture",
    "Learned",
    "RankError",
    "Recipe",
    "Sorter",
    "cosines",
    "default_folder",
    "draw",
    "draw_valid",
    "load",
    "load_sorter",
    "rank_errors",
    "read_sorter",
    "sigmoid_ranks",
    "sorter_file",
    "table",
    "train_sorter",
    "unit_range",
]
