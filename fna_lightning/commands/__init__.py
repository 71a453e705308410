"""The verbs of ``fna-lightning``, one module each: arguments and printing."""
