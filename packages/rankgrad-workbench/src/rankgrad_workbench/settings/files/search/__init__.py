"""Configurations of search in documents; `rankgrad train --help` lists the groups."""
