"""Exact retrieval numbers of embeddings from anywhere, with a separate gallery, and the classes that fail.

    python examples/evaluate_embeddings.py

Makes 200 classes of points and evaluates them twice: all against all, and queries against a gallery. The two numbers
differ: a number without its protocol says little. Needs torch and numpy alone.
"""

from __future__ import annotations

import numpy as np

from rankgrad.evaluation import evaluate


def main() -> None:
    """Evaluate under two protocols."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(200), 6)
    spread = np.linspace(0.3, 1.6, 200)[labels, None]  # later classes are wider, so harder
    embeddings = (rng.normal(size=(200, 32))[labels] + spread * rng.normal(size=(1200, 32))).astype("float32")

    names = ["R@1", "R@5", "mAP@R", "AP", "AUC_hardest"]
    everything = evaluate(embeddings, labels, metrics=names)
    print("every image is a query against all others")
    print(everything, "\n")

    is_query = np.arange(1200) % 6 == 0  # one image of each class asks, one other image of each class answers
    in_gallery = np.arange(1200) % 6 == 1
    single = evaluate(
        embeddings[is_query],
        labels[is_query],
        ref_embeddings=embeddings[in_gallery],
        ref_labels=labels[in_gallery],
        metrics=names,
    )
    print("one image of each class in the gallery")
    print(single, "\n")

    print("hardest classes (all against all):")
    for row in everything.worst_classes(5):
        print(f"  class {row['class']}: AP {100 * row['AP']:.1f} % of {row['queries']} queries")


if __name__ == "__main__":
    main()
