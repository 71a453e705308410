"""The shipped configurations: one YAML file a recipe."""
