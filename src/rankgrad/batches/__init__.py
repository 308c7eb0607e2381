"""Which rows a step sees: samplers, memories of earlier batches, large batches, several processes."""
