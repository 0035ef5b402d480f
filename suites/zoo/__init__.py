"""The zoo: real architectures with random weights, and one model with the weights that it was trained to.

Every case is a loss-bearing model with its inputs, in three sizes: `tiny` for a test run, `small` for a benchmark on
a CPU, `full` for a GPU, with the widths that the architecture was published with.
"""

from transformers.utils import logging

# What the library says about optional kernels and loading would interrupt the progress display of a run.
logging.set_verbosity_error()
logging.disable_progress_bar()
