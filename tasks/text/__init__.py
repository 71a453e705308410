"""Text classification: task, data modules and preprocessing."""
