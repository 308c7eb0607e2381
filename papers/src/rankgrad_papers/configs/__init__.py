"""Settings of the laboratory: data sets, experiments, recipes. rankgrad finds the folder by the entry point."""
