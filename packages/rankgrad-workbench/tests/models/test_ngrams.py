"""The text model of hashed n-grams: what it sees of a text, and that it learns."""

from __future__ import annotations

import copy
import pickle
import zlib

import pytest
import torch

from rankgrad.batches.samplers import MPerClassBatchSampler
from rankgrad.evaluation import evaluate
from rankgrad.losses import SmoothAPLoss
from rankgrad_workbench.models.ngrams import NGrams

WORDS = "card transfer balance pin refund cash limit fee loan rate".split()
COMMON = "the a my of to and in is it you".split()


def sentences(each: int, seed: int):
    """One word of ten tells the class, with a mistake in every second one."""
    g = torch.Generator().manual_seed(seed)
    texts = []
    for word in WORDS:
        for number in range(each):
            words = [COMMON[at] for at in torch.randint(10, (5,), generator=g).tolist()]
            words.insert(int(torch.randint(6, (1,), generator=g)), word[:-1] + "x" if number % 2 else word)
            texts.append(" ".join(words))
    return texts, torch.arange(10).repeat_interleave(each)


def test_a_text_is_the_mean_of_its_n_grams():
    model = NGrams(dim=4, buckets=50, words=(1, 2), characters=(3, 3))
    grams = ["ab", "!", "ab !", "<<ab", "<ab>", "<<!>"]
    rows = sorted(zlib.crc32(gram.encode()) % 50 for gram in grams)
    assert sorted(model.tokens(["AB!"])[0].tolist()) == rows
    torch.testing.assert_close(model(["AB!"])[0], model.table.weight[rows].mean(0))


def test_each_text_is_embedded_by_itself():
    model = NGrams(dim=4, buckets=100)
    texts = ["my card", "", "a loan, please", "   "]
    together = model(texts)
    assert torch.equal(together, torch.cat([model([text]) for text in texts]))
    assert not together[1].any() and not together[3].any() and together[0].any()
    assert model([]).shape == (0, 4)


def test_order_counts_by_pairs_of_words_and_spelling_by_pieces():
    one = NGrams(dim=64, words=(1, 1), characters=(0, 0))
    assert torch.allclose(*one(["card my", "my card"]), atol=1e-6)
    two = NGrams(dim=64, words=(1, 2), characters=(0, 0))
    assert not torch.allclose(*two(["card my", "my card"]), atol=1e-3)
    spelt = ["transfer", "transfre", "balance"]
    with torch.no_grad():
        whole, pieces = (
            torch.nn.functional.normalize(NGrams(dim=256, characters=runs)(spelt)) for runs in ((0, 0), (3, 5))
        )
    assert abs(float(whole[0] @ whole[1])) < 0.3
    assert float(pieces[0] @ pieces[1]) > 0.4 > float(pieces[0] @ pieces[2])


def test_it_learns_what_tells_the_class():
    torch.manual_seed(0)
    model, (texts, labels), (others, of_others) = NGrams(dim=32, buckets=2**12), sentences(12, 0), sentences(8, 1)
    optimizer, loss = torch.optim.Adam(model.parameters(), 0.02), SmoothAPLoss(tau=0.05)

    def score() -> float:
        with torch.no_grad():
            return evaluate(model(others), of_others, intervals=0).values["mAP@R"]

    before = score()
    batches = MPerClassBatchSampler(labels, 10, 4)
    for _ in range(8):
        for rows in batches:
            optimizer.zero_grad()
            loss(model([texts[row] for row in rows]), labels[rows]).backward()
            optimizer.step()
    assert score() > before + 0.3


def test_it_pickles_copies_and_prints():
    model = NGrams(dim=4, buckets=100)
    wanted = model(["my card"])
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(again(["my card"]), wanted)
    other = NGrams(dim=4, buckets=100)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(["my card"]), wanted)
    assert "EmbeddingBag(100, 4" in repr(model)


def test_mistakes_are_told():
    for arguments, told in (
        ({"dim": 0}, "dim is the width .* >= 1; got 0"),
        ({"buckets": 0}, "buckets is .* >= 1; got 0"),
        ({"words": 2}, r"words is the smallest and the largest n of n-grams, such as \(1, 2\); got 2"),
        ({"characters": (5, 3)}, "characters is .* must be an integer >= 5; got 3"),
        ({"words": (0, 0), "characters": (0, 0)}, "words and characters are both"),
    ):
        with pytest.raises(ValueError, match=told):
            NGrams(**arguments)
    with pytest.raises(TypeError, match="list of strings; got one string"):
        NGrams(dim=2, buckets=10)("my card")
