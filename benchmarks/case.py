"""`python -m rankgrad.bench CASE SIZES`: bytes that one case takes at its peak, for `memory.peak_mib`."""

from __future__ import annotations

import sys

from .memory import main
from .suites import CASES

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
