"""Self-contained pages about runs of any task. What a task's page shows is read by the task."""

from __future__ import annotations

from .content import RunContent, read_runs
from .writing import write_comparison, write_report

__all__ = ["RunContent", "read_runs", "write_comparison", "write_report"]
