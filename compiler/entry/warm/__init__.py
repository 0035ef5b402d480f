"""Warm starts: a call that some process has compiled before is made from what was kept of it."""
