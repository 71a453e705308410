"""Matplotlib figures of attention graphs and of attention over images."""
