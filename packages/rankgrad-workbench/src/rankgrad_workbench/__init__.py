"""Runs: settings, training, tuning, pages, indexes and commands."""
