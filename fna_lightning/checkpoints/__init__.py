"""Loading checkpoints safely, writing them atomically and resuming from them."""
