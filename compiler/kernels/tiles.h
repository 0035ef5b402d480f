// Products of float32 matrices by tiles: rows by vectors of columns, whose sums stay in registers. After math.h and
// the sizes of `compiler/kernels/tiles.py`.

#if defined(__AVX512F__)
constexpr int LANES = 16, MOST_VECTORS = 4;
#elif defined(__AVX__)
constexpr int LANES = 8, MOST_VECTORS = 2;
#else
constexpr int LANES = 4, MOST_VECTORS = 2;
#endif
typedef f32 vector __attribute__((vector_size(4 * LANES)));
typedef f32 loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vector all(f32 x) {
#if defined(__AVX512F__)
  return vector{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif defined(__AVX__)
  return vector{x, x, x, x, x, x, x, x};
#else
  return vector{x, x, x, x};
#endif
}

INLINE vector multiply_add(vector a, vector b, vector c) {
#if defined(__AVX512F__) && !defined(__clang__)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
#elif defined(__FMA__) && !defined(__clang__) && !defined(__AVX512F__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  vector r;
  for (int i = 0; i < LANES; i++) r[i] = m::mad(a[i], b[i], c[i]);
  return r;
#endif
}

// A tile: c[r][n] = (start[r][n] where there is one, plus sum over d of a[r][d] * b[d][n]) * factors[r]
template <int rows, int vectors>
INLINE void tile(f32* c, i64 c_step, const f32* a, i64 a_step, const f32* b, i64 b_step, i64 depth, const f32* factors,
                 const f32* start, i64 start_step) {
  vector sums[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; n++) sums[r][n] = vector{};
  for (i64 d = 0; d < depth; d++) {
    vector line[vectors];
#pragma GCC unroll 4
    for (int n = 0; n < vectors; n++) line[n] = *(const loose*)(b + d * b_step + n * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
      vector x = all(a[r * a_step + d]);
#pragma GCC unroll 4
      for (int n = 0; n < vectors; n++) sums[r][n] = multiply_add(x, line[n], sums[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; n++) {
      vector total = start ? sums[r][n] + *(const loose*)(start + r * start_step + n * LANES) : sums[r][n];
      *(loose*)(c + r * c_step + n * LANES) = total * all(factors[r]);
    }
}

template <int vectors>
void by_rows(f32* c, i64 c_step, const f32* a, i64 a_step, const f32* b, i64 b_step, i64 depth, const f32* factors,
             const f32* start, i64 start_step, i64 rows) {
  constexpr int most = LANES == 8 ? (vectors == 1 ? 8 : 6) : (vectors < 3 ? 12 : vectors == 3 ? 8 : 6);
  i64 r = 0;
  for (; r + most <= rows; r += most)
    tile<most, vectors>(c + r * c_step, c_step, a + r * a_step, a_step, b, b_step, depth, factors + r,
                        start ? start + r * start_step : nullptr, start_step);
  if (r < rows && rows >= most && start != c) {  // reaches back over rows that are made twice: as fast as the others
    r = rows - most;
    tile<most, vectors>(c + r * c_step, c_step, a + r * a_step, a_step, b, b_step, depth, factors + r,
                        start ? start + r * start_step : nullptr, start_step);
    return;
  }
  for (; r < rows; r++)
    tile<1, vectors>(c + r * c_step, c_step, a + r * a_step, a_step, b, b_step, depth, factors + r,
                     start ? start + r * start_step : nullptr, start_step);
}

// c = start + a b, `columns` of it, and what is beside them up to a whole vector. `start` is c itself, or apart from it.
INLINE void product(f32* c, i64 c_step, const f32* a, i64 a_step, const f32* b, i64 b_step, i64 depth,
                    const f32* factors, const f32* start, i64 start_step, i64 rows, i64 columns) {
  for (i64 n = 0; n < columns;) {
    const i64 left = m::least((columns - n + LANES - 1) / LANES, MOST_VECTORS);
    const f32* from = start ? start + n : nullptr;
    if (left == 1) by_rows<1>(c + n, c_step, a, a_step, b + n, b_step, depth, factors, from, start_step, rows);
    if (left == 2) by_rows<2>(c + n, c_step, a, a_step, b + n, b_step, depth, factors, from, start_step, rows);
#if defined(__AVX512F__)
    if (left == 3) by_rows<3>(c + n, c_step, a, a_step, b + n, b_step, depth, factors, from, start_step, rows);
    if (left == 4) by_rows<4>(c + n, c_step, a, a_step, b + n, b_step, depth, factors, from, start_step, rows);
#endif
    n += left * LANES;
  }
}
