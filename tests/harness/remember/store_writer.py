"""A process that writes to a store and is killed, or ends: python -m tests.harness.remember.store_writer URL NAME N."""

from __future__ import annotations

import os
import signal
import sys

from assay.harness.remember.store import Store
from tests.harness.remember.rows import FACTS, row

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(url) as store:
    run = store.begin(FACTS, {"names": [name]})
    for number in range(count):
        store.add(run, row(f"{name}.case_{number}"))
        store.keep("text", f"shared {number % 3}".encode())
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    store.end(run)
