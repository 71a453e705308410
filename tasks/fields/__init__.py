"""Regression from scattered points: predict a field at query points from measurements at context points."""
