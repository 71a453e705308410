"""Translation: task, data modules, decoding and scoring."""
