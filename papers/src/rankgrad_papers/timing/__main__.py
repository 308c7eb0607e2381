"""`python -m rankgrad_papers.timing CASE SIZES`: peak memory of a case in bytes, for `memory.peak_mib`."""

from __future__ import annotations

import sys

from .long_list import CASES
from .memory import main

if __name__ == "__main__":
    main(CASES, sys.argv[1:])
