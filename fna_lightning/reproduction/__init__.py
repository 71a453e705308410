"""The paper's tables and figures, one piece each: what ``fna-lightning reproduce`` is made of."""
