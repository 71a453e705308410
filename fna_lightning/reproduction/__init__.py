"""Reproduction of the paper's tables and figures, one artifact each, behind ``fna-lightning reproduce``."""
