"""FNA in other people's models: one package for each library, imported only by who uses it."""
