"""The version. It stands here alone: pyproject.toml reads it, and building needs no import of torch."""

__version__ = "0.2.0"
