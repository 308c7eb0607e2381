"""Retrieval: embeddings that find items of the same class."""
