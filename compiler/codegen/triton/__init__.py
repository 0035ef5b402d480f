"""Kernels as Triton programs."""
