"""A trained model's attention as a graph, studied and shown: what ``fna-lightning analyze`` is made of."""
