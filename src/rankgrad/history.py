"""An earlier place of these names, kept for code that uses it: now `runs.folder` and `runs.history`."""

from .runs.folder import Run as Run
from .runs.history import best as best
from .runs.history import curves as curves
from .runs.history import evaluations as evaluations
