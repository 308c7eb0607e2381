"""Search a gallery with images or texts: embed files, build an index, query it, show the results, export a model."""

from .builder import KINDS, Index, Kind, Measured, build, measure

__all__ = ["KINDS", "Index", "Kind", "Measured", "build", "measure"]
