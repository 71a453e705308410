"""Shared helpers of the tests: attention cases, tiny runs, fixtures that look like real data sets."""
