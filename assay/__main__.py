"""`python -m assay` is the command `assay`."""

from assay.harness.__main__ import main

if __name__ == "__main__":
    main()
