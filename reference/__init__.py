"""The compiler's stages in their most obvious form: what "right" means."""

from assay.checkout import same_as_own

if __name__ == "reference":  # from a checkout's folder
    same_as_own(__name__)
