"""An earlier place of these names, kept for code that uses it: now `papers.experiments`."""

from ..papers.experiments import catalogue, figures, numbers

__all__ = ["catalogue", "figures", "numbers"]
