"""Benchmarks that airspeed velocity follows from commit to commit: `asv run --quick`, then `asv publish`.

Each is parameterised by backend, so that a change of ours shows beside what eager and Inductor do on the same machine.
Nothing is timed before the harness has found its result to be eager's.
"""
