"""Metrics of the embeddings and labels alone, without a ranking: clusters and distances."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from .. import metrics
from ..batches.distributed import on_first
from ..common.progress import steps
from ..search import duplicate_rows
from .arrays import to_numpy

# n x k x dim of k-means; above it (about a second per iteration on one core) mini-batches are used
KMEANS_LIMIT = 3e10
KMEANS_SHORT = 1e9  # n x k x dim; below it k-means takes about two seconds and shows no progress bar


def metrics_of_the_set(
    embeddings: Tensor, classes: Tensor, cluster: bool, seed: int, shared: bool, progress: bool
) -> tuple[dict[str, float], str]:
    """Metrics of the queries' embeddings and single labels, not of the ranking; and the clustering method."""
    values: dict[str, float] = {}
    if classes.ndim == 2:
        return values, "none"
    method = "none"
    if cluster:
        clustering = partial(_clusters, embeddings, len(torch.unique(classes)), seed, progress)
        assigned, method = on_first(clustering) if shared else clustering()
        if assigned is not None:
            values["NMI"] = metrics.nmi(classes.cpu(), assigned)
            values["AMI"] = metrics.ami(classes.cpu(), assigned)
    sizes = torch.bincount(classes)
    if (sizes > 1).any():
        values["dists_intra"] = metrics.dists_intra(embeddings, classes)
    if (sizes > 0).sum() > 1:
        values["dists_inter"] = metrics.dists_inter(embeddings, classes)
    return values, method


def _clusters(embeddings: Tensor, classes: int, seed: int, progress: bool) -> tuple[Tensor | None, str]:
    """k-means labels of the embeddings, the better of two starts (None without scikit-learn); and the method."""
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
    except ImportError:
        return None, "none"
    # k-means finds no more clusters than there are distinct points (and warns)
    count = min(classes, len(embeddings) - len(duplicate_rows(embeddings)[0]))
    points = to_numpy(embeddings)
    size = float(len(points)) * count * points.shape[1]
    show = progress and size > KMEANS_SHORT
    if size > KMEANS_LIMIT:
        kmeans = MiniBatchKMeans(count, n_init=2, random_state=seed, batch_size=max(4096, 2 * count))
        with steps(1, "k-means", "start", show, delay=0) as advance:
            best = kmeans.fit(points)
            advance(1)
    else:
        # the same as n_init=2, but in two calls, so that progress can be shown
        drawn = np.random.RandomState(seed)
        starts = []
        with steps(2, "k-means", "start", show, delay=0) as advance:
            for _ in range(2):
                starts.append(KMeans(count, n_init=1, random_state=drawn).fit(points))
                advance(1)
        best = min(starts, key=lambda start: start.inertia_)
    return torch.from_numpy(best.labels_.astype("int64")), f"{type(best).__name__}(k={count}, n_init=2)"
