"""The zoo on a GPU: the smallest size of every model is eager's there too."""

from __future__ import annotations

import pytest
import torch

from harness.case import Case
from harness.discover import discover
from harness.run import run_case

pytest.importorskip("transformers", reason='the zoo needs: python -m pip install -e ".[zoo]"')
ZOO = discover(["zoo"])

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("case", ZOO, ids=[case.name for case in ZOO])
def test_zoo_on_a_gpu_is_same_as_eager(case: Case, mode: str) -> None:
    result = run_case(case, mode, "assay", device="cuda", timed=False)
    assert (result.verdict, result.differences) == ("same", ()), result.detail
