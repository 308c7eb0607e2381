"""An earlier place of this name, which saved settings use: now `papers.experiments.merged`."""

from ..papers.experiments.merged import load_merged as load_merged
