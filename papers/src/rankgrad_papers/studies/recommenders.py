"""A recommender of products: matrix factorisation with the softmax loss and with SL@K.

    python -m rankgrad_papers.studies.recommenders --data-root DIR

DIR has train.txt, test.txt, train_data.txt and valid_data.txt, with a line "USER ITEM" for each interaction: Amazon
Beauty as Talos (WWW 2026) splits it. train.txt is the union of the last two. A model is a vector for each user and each
item, and a score is their cosine. Its loss is over all items, and the items of a user in the training rows are the
relevant ones. Each trial is trained on train_data and measured on valid_data every few passes; the number of passes and
the trial are those of the best Recall@20 there. The chosen trial of a loss is then trained on train.txt for as many
passes, and measured once on the test. All items are ranked, except those of the user's training rows. If the command is
interrupted, run it again and it continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankgrad import metrics
from rankgrad.losses import ListNetLoss, RetrievalLoss, SLatKLoss
from rankgrad.ranks import exact_ranks

from ..values import append, cells, read
from . import command

K, DIM, USERS, EVERY = 20, 64, 256, 2
METRICS = (f"Recall@{K}", f"NDCG@{K}")
#: Loss -> its trials: settings of the loss, and the rate of Adam.
TRIALS: Mapping[str, Sequence[tuple[str, str]]] = {
    "softmax": tuple((f"tau={tau}", ".01") for tau in ("0.1", "0.07", "0.14", "0.2", "0.28")),
    "sl_at_k": tuple(
        (f"tau={tau} tau_weight={weight}", ".01")
        for tau, weight in (("0.1", "0.3"), ("0.1", "1"), ("0.07", "0.3"), ("0.2", "1"))
    ),
}


class Interactions(NamedTuple):
    """Which user has which item, [row] each, and how many there are of both in all files."""

    user: Tensor
    item: Tensor
    users: int
    items: int

    def of(self, users: Tensor) -> Tensor:
        """[user, item] bool, the items of some users."""
        place = torch.full((self.users,), -1).index_copy_(0, users, torch.arange(len(users)))[self.user]
        found = torch.zeros(len(users), self.items, dtype=torch.bool)
        found[place[place >= 0], self.item[place >= 0]] = True
        return found


def interactions(folder: Path, *names: str) -> list[Interactions]:
    """The interactions of some files."""
    pairs = [torch.from_numpy(np.loadtxt(folder / f"{name}.txt", dtype=np.int64)) for name in names]
    users, items = (int(each) + 1 for each in torch.cat(pairs).amax(0))
    return [Interactions(each[:, 0], each[:, 1], users, items) for each in pairs]


def loss_of(name: str, settings: str) -> RetrievalLoss:
    """The loss of a trial."""
    given = {key: float(value) for key, _, value in (word.partition("=") for word in settings.split())}
    return ListNetLoss(**given) if name == "softmax" else SLatKLoss(k=K, **given)  # type: ignore[arg-type]


def passes(train: Interactions, loss: RetrievalLoss, rate: float, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The vectors of users and items after each pass over the users."""
    g = torch.Generator().manual_seed(seed)
    sides = [nn.Parameter(torch.randn(many, DIM, generator=g) / 10) for many in (train.users, train.items)]
    optimizer = torch.optim.Adam(sides, lr=rate)
    while True:
        for users in torch.split(torch.randperm(train.users, generator=g), USERS):
            optimizer.zero_grad()
            scores = F.normalize(sides[0][users]) @ F.normalize(sides[1]).T
            loss.from_scores(scores, train.of(users)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        user, item = (F.normalize(side.detach()) for side in sides)
        yield user, item


def measured(user: Tensor, item: Tensor, seen: Interactions, held_out: Interactions) -> dict[str, float]:
    """Recall and NDCG over all items that are not seen, mean over the users with held-out items, in per cent."""
    found: list[tuple[Tensor, Tensor]] = []
    for users in torch.split(torch.unique(held_out.user), USERS):
        scores = user[users] @ item.T
        ranks = exact_ranks(scores, held_out.of(users), ~seen.of(users))
        found.append((metrics.item_recall_at_k(ranks, k=K), metrics.ndcg(ranks, k=K)))
    return dict(zip(METRICS, (100 * float(torch.cat(each).mean()) for each in zip(*found, strict=True)), strict=True))


def trial(folder: Path, loss: RetrievalLoss, rate: float, seed: int, most: int) -> dict[str, float]:
    """The best values on the validation rows, and after how many passes."""
    train, held_out = interactions(folder, "train_data", "valid_data")
    best: dict[str, float] = {}
    for number, (user, item) in enumerate(passes(train, loss, rate, seed), 1):
        if number % EVERY == 0:
            values = measured(user, item, train, held_out)
            print(f"  pass {number}: {values[METRICS[0]]:.2f}", flush=True)
            if values[METRICS[0]] > best.get(METRICS[0], 0):
                best = {**values, "passes": number}
        if number >= most or number - best.get("passes", number) >= 2 * EVERY:
            break
    return best


def chosen(path: Path, loss: str) -> tuple[dict[str, str], int]:
    """The setting of the best trial of a loss, and its number of passes."""
    trials = read(path).where({"split": "validation", "loss": loss})
    best = max(trials.settings, key=lambda each: trials.units(each, METRICS[0])["0"])
    return dict(best), round(trials.units(best, "passes")["0"])


def main(words: Sequence[str] | None = None) -> None:
    """Run the cells that the csv does not have yet."""
    parser = command.parser_of(__doc__, "folder of the four files", "papers/results/recommenders/beauty.csv")
    parser.add_argument("--losses", nargs="+", default=[*TRIALS], choices=[*TRIALS], metavar="LOSS")
    parser.add_argument(
        "--trials", type=int, default=5, help="largest number of trials of a loss, 1 to 5 (%(default)s)"
    )
    parser.add_argument("--passes", type=int, default=20, help="largest number of passes (%(default)s)")
    given = parser.parse_args(words)
    torch.set_num_threads(1)

    def missing(key: Mapping[str, str]) -> bool:
        return (tuple(key.items()), "", "0") not in cells(given.values)

    for loss in given.losses:
        for settings, rate in TRIALS[loss][: given.trials]:
            key = {"split": "validation", "loss": loss, "settings": settings, "rate": rate}
            if missing(key):
                print(", ".join(key.values()), flush=True)
                values = trial(given.data_root, loss_of(loss, settings), float(rate), 0, given.passes)
                append(given.values, key, values, seed="0")
        key, most = chosen(given.values, loss)
        key["split"] = "test"
        if missing(key):
            train, test = interactions(given.data_root, "train", "test")
            trained = passes(train, loss_of(loss, key["settings"]), float(key["rate"]), 0)
            user, item = next(each for number, each in enumerate(trained, 1) if number == most)
            values = measured(user, item, train, test)
            print(", ".join(key.values()), values, flush=True)
            append(given.values, key, values, seed="0")


if __name__ == "__main__":
    command.run(main)
