"""Helpers without knowledge of attention or training: files, console output, limits on input."""
