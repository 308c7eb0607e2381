"""The papers' tables and figures: their data, their printed numbers, and their runs.

`paper_tables.csv` has the printed numbers, `tables/*.yaml` the runs of each table, `catalogue` the list of all tables
and figures, `reproduce` the command.
"""
