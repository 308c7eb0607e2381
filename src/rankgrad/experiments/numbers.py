"""An earlier place of these names: now `papers.experiments.numbers`."""

from ..papers.experiments.numbers import find as find
from ..papers.experiments.numbers import select as select
