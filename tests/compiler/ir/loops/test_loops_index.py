"""Indices: simplification never changes a value, and finds the forms that views need."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.compiler.ir.loops.index import (
    Index,
    Int,
    Symbol,
    bounds,
    coefficient,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    simplify,
    substitute,
    symbols,
)
from assay.compiler.ir.loops.text import parse_index, show_index

EXTENTS = {"i": 3, "j": 4, "k": 5}
RANGES: dict[str, Index] = {name: Int(extent) for name, extent in EXTENTS.items()}
i, j, k, n = (Symbol(name) for name in "ijkn")

leaves = st.one_of(st.integers(-6, 12).map(Int), st.sampled_from([i, j, k]))
indices = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, st.integers(-4, 12)).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 12)).map(lambda p: floordiv(p[0], Int(p[1]))),
        st.tuples(inner, st.integers(1, 12)).map(lambda p: mod(p[0], Int(p[1]))),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
    ),
    max_leaves=8,
)
POINTS = [dict(zip(EXTENTS, point, strict=True)) for point in itertools.product(*map(range, EXTENTS.values()))]


@settings(max_examples=300, deadline=None)
@given(indices)
def test_simplify_keeps_every_value(index: Index) -> None:
    simple = simplify(index, RANGES)
    for point in POINTS:
        assert evaluate(simple, point) == evaluate(index, point), (show_index(index), show_index(simple), point)


@settings(max_examples=300, deadline=None)
@given(indices)
def test_bounds_hold(index: Index) -> None:
    low, high = bounds(index, RANGES)
    for point in POINTS:
        value = evaluate(index, point)
        assert low is None or evaluate(low, {}) <= value
        assert high is None or value <= evaluate(high, {})


@settings(max_examples=200, deadline=None)
@given(indices, indices)
def test_substitute_is_evaluation_in_steps(index: Index, value: Index) -> None:
    replaced = substitute(index, {"i": value})
    for point in POINTS[::7]:
        assert evaluate(replaced, point) == evaluate(index, {**point, "i": evaluate(value, point)})


@settings(max_examples=200, deadline=None)
@given(indices)
def test_index_text_round_trip(index: Index) -> None:
    assert parse_index(show_index(index)) is index


@given(indices)
def test_coefficient_is_the_slope(index: Index) -> None:
    slope = coefficient(index, "i")
    if slope is not None:
        for point in POINTS[::5]:
            step = evaluate(index, {**point, "i": point["i"] + 1}) - evaluate(index, point)
            assert step == evaluate(slope, point)


@pytest.mark.parametrize(
    ("index", "expected", "ranges"),
    [
        ((i * 8 + j) // 8, i, {"i": Int(3), "j": Int(8)}),
        ((i * 8 + j) % 8, j, {"i": Int(3), "j": Int(8)}),
        (((i * 12 + j) * 64 + k) // 768, i, {"i": Int(3), "j": Int(12), "k": Int(64)}),
        (((i * 12 + j) * 64 + k) // 64, i * 12 + j, {"i": Int(3), "j": Int(12), "k": Int(64)}),
        ((i * 768 + j) // 64, i * 12 + j // 64, {"i": Int(3), "j": Int(768)}),
        ((k // 768) * 768 + ((k // 64) % 12) * 64 + k % 64, k, {"k": Int(9999)}),
        ((i * n + j) // n, i, {"i": Int(3), "j": n}),
        ((i * n + j) % n, j, {"i": Int(3), "j": n}),
        ((i // 3) // 4, i // 12, {"i": Int(99)}),
        ((i * 4 + j) // 8, i // 2, {"i": Int(99), "j": Int(4)}),
    ],
)
def test_simplify_finds(index: Index, expected: Index, ranges: dict[str, Index]) -> None:
    assert simplify(index, ranges) is expected


def test_indices_are_interned() -> None:
    made = (i * 4 + j) // Int(7)
    assert made is (j + 4 * i - j + j) // 7 or show_index(made) != show_index((j + 4 * i) // 7)
    assert copy.deepcopy(made) is made
    assert pickle.loads(pickle.dumps(made)) is made
    assert symbols(made) == {"i", "j"}
