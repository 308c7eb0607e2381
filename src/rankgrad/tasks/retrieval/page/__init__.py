"""The page of a retrieval run."""
