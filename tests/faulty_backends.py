"""Backends of the bank with which the searches are tested, by the names that those tests use."""

from assay.harness.selftest.wrong_backends.controls import right
from assay.harness.selftest.wrong_backends.ends_of_process import (
    dies_on_a_second_program,
    dies_on_matmul,
    never_ends_on_sort,
)
from assay.harness.selftest.wrong_backends.late_calls import keeps_the_first_numbers
from assay.harness.selftest.wrong_backends.sharing import copies_views
from assay.harness.selftest.wrong_backends.values import loses_a_rounding
from assay.harness.selftest.wrong_backends.writes import drops_write_back

__all__ = [
    "copies_views",
    "dies_on_a_second_program",
    "dies_on_matmul",
    "drops_write_back",
    "keeps_the_first_numbers",
    "loses_a_rounding",
    "never_ends_on_sort",
    "right",
]
