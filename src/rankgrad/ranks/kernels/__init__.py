"""Faster versions of functions. Each also exists in a simple form that gives the same numbers."""
