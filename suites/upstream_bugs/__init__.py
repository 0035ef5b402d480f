"""Differences from eager that the harness found in released compilers: one file each, torch only, run with `python`.

Each file's docstring says what differs, on which backend, in which versions. It exits 0 when the difference shows and 1
when it is gone, as it must be from the version on that the docstring says has mended it.
"""
