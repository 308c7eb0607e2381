"""What the library takes where nothing is said. What a user gives always wins.

After a change here run `make tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: Kind of rows -> name of its default loss, and the settings that differ from the defaults of that loss.
LOSSES: dict[str, tuple[str, Mapping[str, float]]] = {
    "images": ("adaptive_roadmap", {}),
    "texts": ("info_nce", {"tau": 0.1}),  # docs/your-texts.md#the-loss
    "vectors": ("adaptive_roadmap", {}),
    "rows": ("info_nce", {"tau": 0.1}),  # docs/scores.md#train-from-a-file
    "queries": ("lambda", {}),  # docs/scores.md#train-from-a-file
    "documents": ("info_nce", {"tau": 0.1}),  # docs/search-documents.md
}

# Batches of P classes x K rows, and what becomes of classes with fewer than K: papers/results/short-classes.md.
CLASSES_PER_BATCH = 16
SAMPLES_PER_CLASS = 8
SHORT_CLASSES: Literal["fewer"] = "fewer"
