"""The command `assay`."""
