"""Benchmarks behind ``fna-lightning bench``."""
