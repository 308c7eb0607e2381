"""Hydra configurations; `rankgrad train --help` lists the groups."""
