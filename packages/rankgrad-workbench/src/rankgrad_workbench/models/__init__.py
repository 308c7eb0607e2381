"""Networks that compute embeddings: a backbone, a pooling and a head. Built by name; their files hold no code."""

from .build import MODELS, TAKES, build_model, taking
from .convnet import convnet
from .embedding_model import EmbeddingModel, extract_features, parameter_groups
from .heads import EmbeddingHead, Head
from .inputs import ImageInput, TextInput, VectorInput
from .ngrams import NGrams, ngram_model
from .pooling import AvgPool, GeM, MaxPool, Pooling, TokenPool
from .sentence_transformer import sentence_transformer_model
from .timm import timm_model
from .vectors import vector_model
from .weights import load_weights, save_weights

__all__ = [
    "MODELS",
    "TAKES",
    "AvgPool",
    "EmbeddingHead",
    "EmbeddingModel",
    "GeM",
    "Head",
    "ImageInput",
    "MaxPool",
    "NGrams",
    "Pooling",
    "TextInput",
    "TokenPool",
    "VectorInput",
    "build_model",
    "convnet",
    "extract_features",
    "load_weights",
    "ngram_model",
    "parameter_groups",
    "save_weights",
    "sentence_transformer_model",
    "taking",
    "timm_model",
    "vector_model",
]
