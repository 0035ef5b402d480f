"""`python -m assay.suites.tables`: writes the generated parts of all documents."""

from __future__ import annotations

import sys

from assay.suites.tables.parts import documents, filled


def main() -> int:
    for path in documents():
        path.write_text(filled(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
