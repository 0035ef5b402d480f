"""Tests see every compile: nothing is made from what an earlier run kept. Those of warm starts ask for it."""

from __future__ import annotations

import os

os.environ.setdefault("ASSAY_WARM", "0")
