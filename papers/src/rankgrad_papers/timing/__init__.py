"""Time and memory, as ratios within one process. The studies and benchmarks/ use it."""
