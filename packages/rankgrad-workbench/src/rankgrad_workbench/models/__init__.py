"""Networks that compute embeddings: a backbone, a pooling and a head. Built by name; their files hold no code."""

from .build import MODELS, TAKES, build_model, taking, vector_model
from .convnet import convnet
from .embedding_model import EmbeddingModel, extract_features
from .heads import EmbeddingHead
from .ngrams import NGrams, ngram_model
from .sentence_transformer import sentence_transformer_model
from .timm import timm_model
from .weights import load_weights, save_weights

__all__ = [
    "MODELS",
    "TAKES",
    "EmbeddingHead",
    "EmbeddingModel",
    "NGrams",
    "build_model",
    "convnet",
    "extract_features",
    "load_weights",
    "ngram_model",
    "save_weights",
    "sentence_transformer_model",
    "taking",
    "timm_model",
    "vector_model",
]
