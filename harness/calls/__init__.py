"""A program and what it is given: walked, copied, its numbers moved, its memory and its errors told."""
