"""`python -m rankgrad.bench CASE SIZES`: bytes that one case takes at its peak, for `memory.peak_mib`."""

from __future__ import annotations

import sys

from .clocks import threads
from .suites import CASES

if __name__ == "__main__":
    with threads(1):
        print(CASES[sys.argv[1]](*map(int, sys.argv[2:])))
