"""Faster evaluations of functions that exist elsewhere in plain form: the same numbers, never the only path."""
