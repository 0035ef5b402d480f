"""The compiler. `pipeline.py` shows it on one page."""

from pathlib import Path

from assay.checkout import same_as_own

if __name__ == "compiler":  # from a checkout's folder
    same_as_own(__name__)

FOLDER = Path(__file__).parent
"""Where the compiler's own files are."""
