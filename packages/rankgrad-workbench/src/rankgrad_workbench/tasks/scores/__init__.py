"""Ranking by scores: rows of a table, with a label or with grades by query -> a model that scores new rows."""

from __future__ import annotations

from .model import Ranker as Ranker
from .model import load_ranker as load_ranker
from .table import ScoreTable as ScoreTable
from .table import load_table as load_table
