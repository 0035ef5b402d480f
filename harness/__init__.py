"""Observes a program under a backend, holds it to eager, and says what differs, where and by how much."""

from assay.checkout import same_as_own

if __name__ == "harness":  # from a checkout's folder
    same_as_own(__name__)
