"""An earlier place of these names, kept for code and saved settings that use it: now `datasets.transforms`."""

from .datasets.transforms import Collate, InkEval, InkTrain, PhotoEval, PhotoTrain, Transform, warp

__all__ = ["Collate", "InkEval", "InkTrain", "PhotoEval", "PhotoTrain", "Transform", "warp"]
