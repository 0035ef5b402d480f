"""Operators over rows: reductions, scans, sorting, softmax and norms."""
