"""Which package beside the workbench has an unknown name: the package of the papers, or that of detectors."""

from __future__ import annotations

from collections.abc import Iterable

from rankgrad.common import checks

PAPERS = ("rambo", "auc", "pnp", "roadmap")  # experiments, tables and figures begin with one of these
_DATA = (
    *("cub", "cub_cropped", "sop", "inshop", "inaturalist", "vehicleid"),
    *("omniglot", "icons", "drawings", "clinc150", "banking77", "photographs"),
)
#: Kind of a name in messages -> the names that the package of the papers adds, or how they begin.
LABORATORY = {
    **{"data": _DATA, "data set": _DATA, "experiment": PAPERS, "figure": PAPERS, "table": PAPERS},
    "command": ("figure", "reproduce", "paper-figure", "sodeep"),
    "loss": ("sodeep_ap", "sodeep_spearman"),
    "recipe": ("finetune", "finetune_photographs", "pretrain", "pretrain_photographs"),
}
#: The same for the package of detectors.
DETECTION = {"command": ("detect",), "task": ("detection",)}
FROM_CLONE = "In a clone: pip install ./papers."


def of_laboratory(kind: str, given: str, known: Iterable[str] = ()) -> str:
    """The end of a message about an unknown name that the laboratory has, or the package of detectors; "" if none has.

    >>> of_laboratory("data set", "SOP", ["folder", "text"])
    '; SOP belongs to the package of the papers. In a clone: pip install ./papers.'
    """
    top = given.lower().partition("/")[0]
    if top in {name.partition("/")[0] for name in known}:
        return ""
    if top in LABORATORY.get(kind, ()):
        return f"; {given} belongs to the package of the papers. {FROM_CLONE}"
    if top in DETECTION.get(kind, ()):
        return f"; {given} belongs to the package of detectors. In a clone: pip install ./packages/rankgrad-detection."
    return ""


def unknown(kind: str, given: object, known: Iterable[str], lister: str = "") -> str:
    """`checks.unknown`, with the package that has the name if one of them has it."""
    names = list(known)
    return checks.unknown(kind, given, names, lister, of_laboratory(kind, str(given), names))
