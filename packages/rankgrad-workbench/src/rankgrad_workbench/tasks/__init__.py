"""The kinds of runs of rankgrad, one room each. `workbench.kinds` has their table; no task imports another."""
