"""Differences from eager that the harness found in released compilers: one file each, torch only, run with `python`.

Each file's docstring says what differs, of which kind (`KINDS` of `suites/tables/upstream.py`), on which backend, in
which versions. It exits with 0 when the difference shows, and with 1 when it is gone. From the version on that the
docstring says has mended it, the difference must be gone.
"""
