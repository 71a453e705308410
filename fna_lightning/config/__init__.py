"""Configurations: finding shipped files, building objects from YAML, plug-ins, trust and error messages."""
