"""What a finished call runs."""
