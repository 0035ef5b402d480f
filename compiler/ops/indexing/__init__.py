"""Operators whose elements come from other places: views, indexing, lookups, scatters, windows."""
