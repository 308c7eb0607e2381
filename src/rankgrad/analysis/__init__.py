"""An earlier place of these names, kept for code that uses it: now `papers.analysis`."""

from ..papers.analysis import FIGURES as FIGURES
from ..papers.analysis import Study as Study
from ..papers.analysis import style as style
