"""Which stores are made while a row is walked for its reductions: `y[i, j] = x[i, j]; s[i] = sum_j x[i, j]`.

All that such a store needs is read in that walk; one of its own would read it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from assay.compiler.codegen.loops import affine
from assay.compiler.codegen.loops.renamer import subexpressions
from assay.compiler.ir.loops.kernel import Bind, Check, Load, Reduce, Scan, Store
from assay.compiler.ir.loops.rewrite import is_scattered

Kind = tuple[object, object]
"""The dtype and the number of elements of a buffer."""


def early_stores(
    stores: Sequence[Store],
    walked: Sequence[Reduce],
    reductions: Sequence[Reduce],
    own: frozenset[str],
    kinds: Mapping[str, Kind],
    taken: Collection[Store],
) -> list[Store]:
    """The stores that come with the walk of the reductions `walked`, whose variables are `own`; not those `taken`.

    What others store later must not have been overwritten by then. A buffer that one of all `reductions` reads lies in
    no other one's memory (`schedule/dependence.py`), and any may that is read elsewhere and is as large.
    """
    reduced = {e.buffer for e in subexpressions(r.body for r in reductions) if isinstance(e, Load)}
    here = {e for e in subexpressions(r.body for r in walked) if isinstance(e, Load)}
    early = [s for s in stores if _needs_only(s, here, own) and not any(s is other for other in taken)]
    late = [s for s in stores if not any(s is other for other in early)]
    written = [s.buffer for s in stores]
    loaded = {e.buffer for e in subexpressions(s.expr for s in stores) if isinstance(e, Load)}
    read_late = {e.buffer for e in subexpressions(s.expr for s in late) if isinstance(e, Load)} - reduced
    in_the_way = {kinds[name] for name in read_late}
    return [
        s for s in early
        if s.buffer not in loaded and written.count(s.buffer) == 1 and kinds[s.buffer] not in in_the_way
    ]  # fmt: skip


def _needs_only(store: Store, loads: Collection[Load], own: frozenset[str]) -> bool:
    """Whether a store of each element of a row is of what these loads read, and of nothing that is computed before."""
    found = list(subexpressions([store.expr]))
    needed = [e for e in found if isinstance(e, Load)]
    if store.mode != "write" or not needed or not affine.names(store.index) & own or is_scattered(store):
        return False
    return not any(isinstance(e, Reduce | Scan | Bind | Check) for e in found) and all(e in loads for e in needed)
