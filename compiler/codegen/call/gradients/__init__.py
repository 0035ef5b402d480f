"""The halves of a call that records gradients, and a whole backward as one function."""
