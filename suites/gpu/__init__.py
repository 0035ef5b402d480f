"""What needs a GPU: kernels beside eager, and how fast they are. From a checkout: `PYTHONPATH=. pytest -m gpu`."""
