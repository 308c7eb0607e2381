"""The kind of run `search`: queries and documents -> an encoder, judged beside BM25."""
