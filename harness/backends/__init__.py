"""The names that `--backend` takes, and the backends that only the harness has."""
