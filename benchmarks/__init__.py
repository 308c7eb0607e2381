r"""`make bench`: time and memory, as ratios within one run, so that the machine cancels out.

What is compared alternates within one process (round by round, so that a slow moment hits all of it), on one thread.
Times are processor time (user + system), which other programs disturb least; a ratio is the median over the rounds of
the ratio within a round. Peak memory is measured in a process of its own for each point.

Beside our code stand floors that no code can beat (a bare matrix product, elementwise steps, a copy), references that
follow a formula as it is printed, and packages that do the same job, where they are installed.

With `--device cuda` the clock is that of the GPU and memory that of its allocator; nothing else differs, so what runs
there is tested on a CPU.

One file per suite; a suite is a function `Options` -> `Result`, listed in `suites.SUITES`.
"""

from __future__ import annotations

CASE = "benchmarks.case"  # measures one case in a process of its own
