"""Tuning: equally many trials for every loss, chosen on held-out training classes, compared on the test classes."""
