"""Text classification: task, data modules and codec."""
