"""Figures of attention graphs and of attention over images, drawn with Matplotlib."""
