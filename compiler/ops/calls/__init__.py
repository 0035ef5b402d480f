"""Operators that are calls, to ATen or to kernels of our own."""
