"""Rows on many processes or machines, by Dask."""
