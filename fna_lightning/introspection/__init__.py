"""Attention inside a model: find the layers, record their weights, ablate them, choose probe batches."""
