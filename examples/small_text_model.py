"""A small transformer of random weights, with a tokenizer trained on your texts, as a folder for model.name=.

    python examples/small_text_model.py sentences.txt FOLDER
    rankgrad train data=text data.root=sentences.csv model=sentence_transformer model.name=FOLDER optimizer.lr=5e-4

The file has a text per line. For comparisons in which no model may have seen other texts, and where nothing can be
downloaded; a model that was trained on many texts knows more.
"""

import argparse
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

LONGEST = 48  # tokens of a text
MARKS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def tokenizer(texts: list[str], words: int) -> Tokenizer:
    """Pieces of words, as BERT's, learned from the texts."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=words, special_tokens=[*MARKS.values()]))
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def build(texts: list[str], folder: Path, dim: int = 128, layers: int = 2, words: int = 4000, seed: int = 0) -> None:
    """Save model and tokenizer in the folder."""
    torch.manual_seed(seed)
    pieces = tokenizer(texts, words)
    size = {"hidden_size": dim, "intermediate_size": 4 * dim, "num_hidden_layers": layers, "num_attention_heads": 4}
    body = BertModel(BertConfig(vocab_size=pieces.get_vocab_size(), max_position_embeddings=LONGEST, **size))
    body.save_pretrained(folder / "bert")
    marks = {f"{name}_token": mark for name, mark in MARKS.items()}
    fast = PreTrainedTokenizerFast(tokenizer_object=pieces, model_max_length=LONGEST, **marks)
    fast.save_pretrained(folder / "bert")
    model = SentenceTransformer(modules=[Transformer(str(folder / "bert")), Pooling(dim)], device="cpu")
    model.save(str(folder))
    print(f"{folder}: {sum(weight.numel() for weight in model.parameters()):,} weights")
    print(f"{pieces.get_vocab_size():,} pieces of words of {len(texts):,} texts; at most {LONGEST} in a text")
    print(f"rankgrad train data=text data.root=FILE model=sentence_transformer model.name={folder} optimizer.lr=5e-4")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, help="a text per line")
    parser.add_argument("folder", type=Path, help="to write")
    parser.add_argument("--dim", type=int, default=128, help="of the embedding")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--words", type=int, default=4000, help="pieces of words at most")
    given = parser.parse_args()
    build(given.texts.read_text(encoding="utf-8").splitlines(), given.folder, given.dim, given.layers, given.words)
