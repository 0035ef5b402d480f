"""Suites of small calls by the thousand: samples of operators and gradients, many to a compile."""
