"""Networks that give embeddings: a backbone, a pooling and a head; built by name, saved without code."""

from .build import MODELS, build_model
from .convnet import convnet
from .embedding_model import EmbeddingModel, extract_features, parameter_groups
from .heads import EmbeddingHead, Head, head_only
from .pooling import AvgPool, GeM, MaxPool, Pooling, TokenPool
from .timm import timm_model
from .weights import load_weights, save_weights

__all__ = [
    "MODELS",
    "AvgPool",
    "EmbeddingHead",
    "EmbeddingModel",
    "GeM",
    "Head",
    "MaxPool",
    "Pooling",
    "TokenPool",
    "build_model",
    "convnet",
    "extract_features",
    "head_only",
    "load_weights",
    "parameter_groups",
    "save_weights",
    "timm_model",
]
