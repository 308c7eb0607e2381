"""A gallery that can be asked with pictures: embed files, build an index, query it, show what was found, export."""

from .builder import KINDS, Index, Kind, Measured, build, measure

__all__ = ["KINDS", "Index", "Kind", "Measured", "build", "measure"]
