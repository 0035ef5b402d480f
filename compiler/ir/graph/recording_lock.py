"""`recording_lock`: held by the thread that records, and by who makes graphs that may record.

What recordings look after, as the state of random numbers, and what they change of torch meanwhile, is the process's.
One lock for all of it knows no order in which two threads could wait for each other. It is Dynamo's own, under which
Dynamo puts that state back when it has compiled something in another thread. A thread may take it again.
"""

from __future__ import annotations

from torch._dynamo.convert_frame import compile_lock as recording_lock

__all__ = ["recording_lock"]
