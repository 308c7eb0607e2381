"""Configurations of models that give scores; `rankgrad train --help` lists the groups."""
