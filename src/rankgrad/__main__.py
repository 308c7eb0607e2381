"""`python -m rankgrad`: what the command `rankgrad` does, for launchers that start modules (torchrun)."""

from __future__ import annotations

import sys

from .workbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
