"""Benchmarks behind ``fna-lightning bench``.

Each benchmark is a module with ``add_arguments`` and ``run``: its arguments and its printing are kept beside its
measurement, because a result can only be read together with the settings it was measured with.
"""
