"""Settings of detectors. rankgrad finds the folder by the entry point."""
