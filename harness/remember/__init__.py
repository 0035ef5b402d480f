"""What runs have found, kept: the store, the causes that failures have in common, what is new against another run."""
