"""Writes in a program: what functionalization makes invisible, and what eager refuses."""
