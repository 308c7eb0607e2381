"""An earlier place of these names, kept for code that uses it: now `training.retrieval` and `index.folder`."""

from .index.folder import embed_folder as embed_folder
from .training.retrieval import load_table as load_table
from .training.retrieval import summary as summary
from .training.retrieval import train as train
