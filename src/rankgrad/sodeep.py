"""An earlier place of these names, which saved settings use: now `papers.sodeep`."""

from .papers.sodeep import *  # noqa: F403
from .papers.sodeep import Learned as Learned
from .papers.sodeep import load_sorter as load_sorter
