"""The commands that rankgrad-papers adds to rankgrad."""
