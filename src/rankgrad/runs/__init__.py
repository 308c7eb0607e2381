"""What runs leave behind: their folders, embeddings, comparisons and statistics."""
