"""Studies of our own. They train the same losses on many units, to separate real differences from chance."""

#: Name of a loss in the studies and their tables -> its name in the library, where it has changed since they were made.
RENAMED = {"pml/triplet": "pml/batch_hard_triplet"}


def loss_setting(loss: str) -> str:
    """The setting that chooses a loss of the studies.

    >>> loss_setting("supap"), loss_setting("pml/triplet")
    ('loss=supap', 'loss=pml/batch_hard_triplet')
    """
    return f"loss={RENAMED.get(loss, loss)}"
