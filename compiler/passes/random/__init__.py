"""Passes on random numbers."""
