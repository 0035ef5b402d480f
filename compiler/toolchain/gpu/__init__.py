"""Triton kernels: building, tuning, loading and launching them."""
