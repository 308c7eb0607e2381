"""Ranking by scores: rows of a table, with a label or with grades by query -> a model that scores new rows."""
