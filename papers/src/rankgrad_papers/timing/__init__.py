"""Time and memory, as ratios within one process; what studies measure, and what benchmarks/ shares with them."""
