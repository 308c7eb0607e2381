"""What a check of a data set found, and the warning that it is not the published one. Packages check their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankgrad.common.text import shown

Status = Literal["ok", "note", "wrong"]

# End of the sentence on counts that differ.
NOT_COMPARABLE = "Its results are not comparable with those of papers"


class CountWarning(UserWarning):
    """The counts of a data set differ from the published ones, so its results cannot be compared with a paper's."""


@dataclass(frozen=True)
class Observation:
    """The result of one check.

    Attributes:
        status: "ok", "note" (information) or "wrong".
        text: the result, in words.
        todo: what to do; empty: nothing.
    """

    status: Status
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Inspection:
    """The results of all checks. Print it to get a list.

    Attributes:
        title: name and folder of the data set.
        findings: the results, in the order of the checks.
    """

    title: str
    findings: tuple[Observation, ...]

    @property
    def wrong(self) -> int:
        """Number of results with status "wrong"."""
        return sum(finding.status == "wrong" for finding in self.findings)

    def __str__(self) -> str:
        lines = [shown(self.title)]
        for finding in self.findings:
            lines.append(f"  {finding.status:7}{shown(finding.text)}")
            if finding.todo:
                lines.append(f"         -> {shown(finding.todo)}")
        end = f"{self.wrong} problem{'s' if self.wrong > 1 else ''}" if self.wrong else "complete"
        return "\n".join([*lines, end])
