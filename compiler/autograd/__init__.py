"""From a recorded call to forward and backward."""
