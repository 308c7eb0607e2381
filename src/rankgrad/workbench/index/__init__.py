"""Search a gallery with images or texts: embed files, build an index, query it, show the results, export a model."""

from .builder import build, measure
from .disk import KINDS, Kind, Measured
from .gallery import Index

__all__ = ["KINDS", "Index", "Kind", "Measured", "build", "measure"]
