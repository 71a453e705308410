"""The version, on its own so that a build reads it without importing torch."""

VERSION = "0.1.0"
