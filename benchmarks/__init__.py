r"""`make bench`: time and memory, as ratios within one run, so that they depend little on the machine.

The compared actions alternate within one process (in rounds, so that a slow moment affects all of them), on one thread.
Times are processor time (user + system), which other programs affect least. A ratio is the median over the rounds of
the ratio within a round. Peak memory is measured in a new process for each point.

Our code is compared with lower bounds (a matrix product, elementwise steps, a copy), with references that
follow a printed formula, and with packages for the same task, if they are installed.

With `--device cuda`, time is that of the GPU and memory that of its allocator. The rest is the same, so that the code
can be tested on a CPU.

One file per suite; a suite is a function `Options` -> `Result`, listed in `suites.SUITES`.
"""

from __future__ import annotations

CASE = "benchmarks.case"  # measures one case in a new process
