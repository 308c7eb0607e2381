"""Texts with classes, and models of every kind for them, made here: nothing is downloaded."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

WORDS = "card transfer balance pin refund cash limit fee loan rate account phone app exchange travel freeze".split()
COMMON = "the a my of to and in is it you that on for with as at".split()
CLASSES = len(WORDS)


def sentences(each: int = 12, classes: int = CLASSES, seed: int = 0) -> tuple[list[str], list[int]]:
    """(texts, labels): one word tells the class, or one time in ten none does, and five common words tell nothing."""
    rng = random.Random(seed)
    texts, labels = [], []
    for label in range(classes):
        for _ in range(each):
            words = [rng.choice(COMMON) for _ in range(5)] + [WORDS[label] if rng.random() < 0.9 else rng.choice(WORDS)]
            rng.shuffle(words)
            texts.append(" ".join(words))
            labels.append(label)
    return texts, labels


def tokenizer() -> Tokenizer:
    """Whole words, with the marks that BERT wants."""
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(sentences()[0], trainers.WordLevelTrainer(special_tokens=special))
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def bert_folder(folder: Path, dim: int = 16, dropout: float = 0.0, head: bool = False) -> str:
    """A small BERT of random weights with its tokenizer, as save_pretrained leaves it; made if it is not there yet."""
    if (folder / "config.json").exists():
        return str(folder)
    from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer().get_vocab_size(),
        hidden_size=dim,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * dim,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    (BertForMaskedLM(config) if head else BertModel(config)).save_pretrained(folder)
    marks = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), model_max_length=32, **{f"{name}_token": mark for name, mark in marks.items()}
    )
    fast.save_pretrained(folder)
    return str(folder)


def static_model(dim: int = 16):
    """Mean of word vectors: the quickest model sentence-transformers has."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(0)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer(), embedding_dim=dim)], device="cpu")


def bert_model(folder: Path, dim: int = 16, dropout: float = 0.0):
    """A BERT with mean pooling, in float64."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    body = Transformer(bert_folder(folder, dim, dropout))
    return SentenceTransformer(modules=[body, Pooling(dim)], device="cpu").double()


def splade_model(folder: Path):
    """A SPLADE encoder: one number per word of the vocabulary."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    body = Transformer(bert_folder(folder, head=True), transformer_task="fill-mask")
    return SparseEncoder(modules=[body, SpladePooling()], device="cpu")
