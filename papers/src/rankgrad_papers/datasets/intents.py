"""Two public data sets of sentences with intents, divided by intents: the test classes are not in training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from rankgrad.common.text import shown
from rankgrad_workbench.datasets.tabular import word
from rankgrad_workbench.datasets.text import TextTable, text_table
from rankgrad_workbench.files.tables.formats import read_rows

Validation = Literal["apart", "train"]


def load_clinc150(root: str | Path, validation: Validation = "apart") -> TextTable:
    """CLINC150: 22 500 sentences of 150 intents in 10 domains, divided by intents; super-label = domain.

    Larson et al., An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction, EMNLP-IJCNLP 2019
    (CC BY 3.0). The out-of-scope sentences are left out. The official splits have the same intents. Here the sentences
    of the three official splits are joined, and the intents are divided. Domains are sorted by name, and the intents of
    a domain as well. Intent number i of 0 .. 149 is test if i % 3 == 2 (50), val if i % 6 == 0 (25), else train (75).

    Args:
        root: folder with data_full.json and domains.json.
        validation: "apart": the 25 intents are val, for choosing settings; "train": they are train, for final results.
    """
    root = Path(root)
    data, domains = (_json(root / name, "CLINC150") for name in ("data_full.json", "domains.json"))
    order = [(domain, intent) for domain in sorted(domains) for intent in sorted(domains[domain])]
    of = {intent: (domain, _of_number(number, validation)) for number, (domain, intent) in enumerate(order)}
    rows = [(text, intent) for part in ("train", "val", "test") for text, intent in data[part]]
    lost = next((intent for _, intent in rows if intent not in of), None)
    if lost is not None:
        raise ValueError(f"domains.json of CLINC150 has no intent {lost!r}: the two files do not belong together")
    return text_table(
        "clinc150",
        [text for text, _ in rows],
        [intent for _, intent in rows],
        [of[intent][1] for _, intent in rows],
        [f"{part} {number}" for part in ("train", "val", "test") for number in range(len(data[part]))],
        [of[intent][0] for _, intent in rows],
    )


def load_banking77(root: str | Path, validation: Validation = "apart") -> TextTable:
    """BANKING77: 13 083 questions to a bank, of 77 similar intents, divided by intents.

    Casanueva et al., Efficient Intent Detection with Dual Sentence Encoders, 2020, arXiv:2003.04807 (CC BY 4.0).
    The questions of train.csv and test.csv are joined. Intents are sorted by name; number i of 0 .. 76 is test if
    i % 3 == 2 (25), val if i % 6 == 0 (13), else train (39).

    Args:
        root: folder with train.csv and test.csv.
        validation: see `load_clinc150`.
    """
    root = Path(root)
    rows: list[tuple[str, str]] = []
    names: list[str] = []
    for name in ("train.csv", "test.csv"):
        if not (root / name).is_file():
            raise FileNotFoundError(f"{shown(root)} has no {name}: BANKING77 is a folder with train.csv and test.csv")
        for place, row in read_rows(root / name, None):
            if not {"text", "category"} <= set(row):
                raise ValueError(f"{place} is not from BANKING77, whose columns are text and category")
            rows.append((word(row["text"], "text", place), word(row["category"], "category", place)))
            names.append(f"{name} {place.rpartition(', ')[2]}")
    intents = {intent: number for number, intent in enumerate(sorted({intent for _, intent in rows}))}
    splits = [_of_number(intents[intent], validation) for _, intent in rows]
    return text_table("banking77", [text for text, _ in rows], [intent for _, intent in rows], splits, names)


def _of_number(number: int, validation: str) -> str:
    """The split of an intent by its number."""
    if validation not in ("apart", "train"):
        raise ValueError(f"validation must be 'apart' or 'train'; got {validation!r}")
    if number % 3 == 2:
        return "test"
    return "val" if number % 6 == 0 and validation == "apart" else "train"


def _json(path: Path, title: str) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{shown(path.parent)} has no {path.name}; {title} needs it")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown(path)} is not JSON, or it is damaged: {error}") from None
