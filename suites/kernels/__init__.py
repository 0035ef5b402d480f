"""Speed of single generated kernels against eager: `python -m pytest suites/kernels/bench_kernels.py`."""
