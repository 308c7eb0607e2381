"""`python -m rankgrad`: what the command `rankgrad` does, for launchers that start modules (torchrun)."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from rankgrad_workbench.cli import main
    except ModuleNotFoundError as error:
        from .common.extras import missing

        sys.exit(f"rankgrad: {missing(str(error.name))}")
    sys.exit(main())
