"""An earlier place of these names, kept for code that uses it: now `index.query`."""

from .index.query import Answer, Hit, as_records, as_text, find, query_files

__all__ = ["Answer", "Hit", "as_records", "as_text", "find", "query_files"]
