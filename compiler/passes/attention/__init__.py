"""Passes that give attention to one kernel."""
