"""Which package beside the workbench has an unknown name: the package of the papers, or that of detectors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rankgrad.common import checks

#: Kind of a name in messages -> the names that the laboratory adds, the package in the folder papers/ of a clone.
LABORATORY = {
    "command": ("figure", "reproduce", "paper-figure", "sodeep"),
    "data set": (
        *("cub", "cub_cropped", "sop", "inshop", "inaturalist", "vehicleid"),
        *("omniglot", "icons", "drawings", "clinc150", "banking77", "photographs"),
    ),
    "loss": ("sodeep_ap", "sodeep_spearman"),
    "recipe": ("finetune", "finetune_photographs", "pretrain", "pretrain_photographs"),
}
#: The same for the package of detectors, in the folder packages/rankgrad-detection/.
DETECTION = {"command": ("detect",), "task": ("detection",)}
FROM_CLONE = "In a clone: pip install ./papers."
_ADDED = (
    ("the package of the papers", FROM_CLONE, LABORATORY),
    ("the package of detectors", "In a clone: pip install ./packages/rankgrad-detection.", DETECTION),
)
PAPERS = ("rambo", "auc", "pnp", "roadmap")  # its experiments, tables and figures begin with one of these


def of_laboratory(kind: str, given: str, known: Iterable[str] = ()) -> str:
    """The end of a message about an unknown name that the laboratory has, or the package of detectors; "" if none has.

    >>> of_laboratory("data set", "SOP", ["folder", "text"])
    '; sop belongs to the package of the papers. In a clone: pip install ./papers.'
    """
    kind = {"data": "data set"}.get(kind, kind)
    there = {name.partition("/")[0] for name in known} | set(known)
    of_papers = kind in ("experiment", "figure", "table") and given.lower().partition("/")[0] in PAPERS
    for package, how, names in _ADDED:
        close = difflib.get_close_matches(given.lower(), names.get(kind, ()), n=1, cutoff=0.75)
        name, top = (given, given.lower().partition("/")[0]) if of_papers else (close or [""])[:1] * 2
        if name and top not in there:
            return f"; {name} belongs to {package}. {how}"
    return ""


def unknown(kind: str, given: object, known: Iterable[str], lister: str = "") -> str:
    """`checks.unknown`, with the package that has the name if one of them has it."""
    names = list(known)
    return checks.unknown(kind, given, names, lister, of_laboratory(kind, str(given), names))
