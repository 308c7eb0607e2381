"""Configurations of detectors; `rankgrad detect train --help` lists the groups."""
