"""Code shared by all data modules: splits, caches, hub access, tokenization, padding, codecs."""
