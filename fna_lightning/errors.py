"""Errors that a user can correct."""


class UsageError(Exception):
    """A command line or configuration that cannot be run as it stands."""
