"""The papers' tables and figures: what each needs, its numbers, and the runs that it takes.

`paper_tables.csv` has the printed numbers, `tables/*.yaml` the runs of a table, `catalogue` the list of everything,
`reproduce` the command.
"""
