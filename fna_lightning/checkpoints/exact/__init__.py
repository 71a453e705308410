"""State that the checkpoints of Lightning and torchmetrics leave out.

Only this package uses private attributes of Lightning and torchmetrics; ``private_api`` checks that they exist.
"""
