"""State that Lightning and torchmetrics leave out of a checkpoint. All use of their private attributes is here."""
