"""`python -m benchmarks.case CASE SIZES`: peak memory of a case in bytes, for `memory.peak_mib`."""

from __future__ import annotations

import sys

from rankgrad_papers.timing.memory import main

from .suites import CASES

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
