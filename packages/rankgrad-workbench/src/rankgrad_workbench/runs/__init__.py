"""The folders of runs, their embeddings, comparisons and statistics."""
