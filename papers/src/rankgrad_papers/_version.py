"""The version, always that of rankgrad: a test holds the two together."""

__version__ = "0.2.0"
