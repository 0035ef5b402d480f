"""Programs that the harness runs: models, semantics, operators, drawn programs, kernels, benchmarks."""

from assay.checkout import same_as_own

if __name__ == "suites":  # from a checkout's folder
    same_as_own(__name__)
