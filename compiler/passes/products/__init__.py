"""Passes on products of matrices and convolutions: which library or kernel computes them, and in which layout."""
