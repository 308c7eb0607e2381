"""The version. It is always the version of rankgrad, and a test checks this."""

__version__ = "0.2.0"
