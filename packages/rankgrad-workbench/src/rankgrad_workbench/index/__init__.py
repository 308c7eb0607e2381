"""Search a gallery with images or texts: embed files, query their index, show the results, export a model."""

from .gallery import Index, Origin

__all__ = ["Index", "Origin"]
