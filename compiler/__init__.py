"""Assay's compiler. `pipeline.py` shows it on one page."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where the compiler's own files are."""
