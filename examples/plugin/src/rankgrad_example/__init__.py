"""A plug-in for rankgrad, to start from."""
