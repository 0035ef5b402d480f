"""From a call to a functional graph with a signature."""
