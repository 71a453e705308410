"""Looking at the attention of a model: find its layers, record their weights, ablate them, choose probe batches."""
