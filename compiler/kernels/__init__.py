"""Kernels that are written by hand, and called by generated code."""
