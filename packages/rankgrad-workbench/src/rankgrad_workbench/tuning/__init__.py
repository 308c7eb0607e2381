"""Tuning: equally many trials for every loss, chosen on held-out training data, compared on the test."""
