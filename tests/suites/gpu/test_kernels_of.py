"""`python -m assay.suites.gpu.kernels_of`, on what the CPU runs."""

from __future__ import annotations

import pytest
import torch

from assay.suites.gpu.kernels_of import kernels, main, table


def test_kernels_counts_what_a_step_launches() -> None:
    x = torch.randn(64, 64)
    rows = kernels(lambda: (x @ x) @ x, "cpu")
    assert ("aten::mm", 2.0) in {(name, launches) for name, launches, _ in rows}
    assert [us for *_, us in rows] == sorted((us for *_, us in rows), reverse=True)


def test_table_adds_the_rest_up() -> None:
    text = table([("a", 1, 30.0), ("b", 2, 20.0), ("c", 4, 10.0)], 100.0, 1)
    assert "30.0 us" in text.splitlines()[0] and "6.0 x  2 others" in text
    assert text.endswith("60.0 us in kernels, of 100.0 us that a step takes")


def test_an_unknown_case_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["zoo.nothing", "--device", "cpu"])
    assert raised.value.code == 2 and "no case of zoo" in capsys.readouterr().err
