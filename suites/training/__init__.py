"""Loops that people write, with whole backwards compiled: their losses are eager's over twenty steps."""
