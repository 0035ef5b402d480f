// out = x w + bias for float32 matrices, of which either may lie transposed. After tiles.h.
//
// A panel of columns of w is packed once for all rows of a thread, DEEP of its depth at a time, as the second cache holds;
// rows of x are read where they lie, or turned first, TURNED together. Threads share the columns where these come out even, else the rows.

// to[d * PANEL + j] = w[j * column_step + d * depth_step], one of the steps being 1
INLINE void pack(f32* to, const f32* w, i64 column_step, i64 depth_step, i64 depth, i64 width) {
  if (depth_step == 1) {
    m::transpose(to, PANEL, w, column_step, depth, width);
  } else {
    for (i64 d = 0; d < depth; d++) {
#pragma omp simd
      for (i64 j = 0; j < width; j++) to[d * PANEL + j] = w[d * depth_step + j];
    }
  }
}

INLINE void copy(f32* to, i64 to_step, const f32* from, i64 from_step, i64 rows, i64 columns) {
  for (i64 r = 0; r < rows; r++)
    for (i64 j = 0; j < columns; j++) to[r * to_step + j] = from[r * from_step + j];
}

// Some rows of out in the columns of a packed panel, whose bias is null where a part of the depth was added before.
INLINE void rows_of_panel(f32* out, i64 columns, const f32* x, i64 x_step, const f32* panel, const f32* bias, i64 depth,
                          bool adds, i64 rows, i64 width) {
  const bool is_whole = width % LANES == 0;
  const i64 chain = !adds && depth > SUMMED && depth < 2 * SUMMED ? (depth + 1) / 2 : SUMMED;
  f32 ones[ROWS], edge[PANEL];
  alignas(64) f32 block[ROWS * PANEL];
  for (i64 r = 0; r < ROWS; r++) ones[r] = 1.0f;
  for (i64 j = 0; j < PANEL; j++) edge[j] = bias && j < width ? bias[j] : 0.0f;
  for (i64 first = 0; first < rows; first += ROWS) {
    const i64 count = m::least(ROWS, rows - first);
    f32 *target = out + first * columns, *to = is_whole ? target : block;
    const i64 step = is_whole ? columns : PANEL;
    if (!is_whole && adds) copy(block, PANEL, target, columns, count, width);
    for (i64 d = 0; d < depth; d += chain) {
      const bool is_sum = adds || d > 0;
      product(to, step, x + first * x_step + d, x_step, panel + d * PANEL, PANEL, m::least(chain, depth - d), ones,
              is_sum ? to : bias ? edge : nullptr, is_sum ? step : 0, count, width);
    }
    if (!is_whole) copy(target, columns, block, PANEL, count, width);
  }
}

struct Matrix {
  i64 row, column;  // the steps, one of which is 1
};

// Rows from..to and columns begin..end of out [rows, columns], without gaps, by one thread.
INLINE void part_of_product(const f32* x, Matrix of_x, const f32* w, Matrix of_w, const f32* bias, f32* out, f32* scratch,
                            i64 from, i64 to, i64 begin, i64 end, i64 depth, i64 columns) {
  f32 *panel = scratch, *turned = scratch + DEEP * PANEL;
  const bool is_turned = of_x.column != 1;
  const i64 together = is_turned ? TURNED : to - from;
  for (i64 first = from; first < to; first += together) {
    const i64 count = m::least(together, to - first);
    for (i64 d = 0; d < depth; d += DEEP) {
      const i64 part = m::least(DEEP, depth - d);
      const f32* mine = is_turned ? turned : x + first * of_x.row + d;
      if (is_turned) m::transpose(turned, part, x + first + d * of_x.column, of_x.column, count, part);
      for (i64 p = begin; p < end; p += PANEL) {
        const i64 width = m::least(PANEL, columns - p);
        pack(panel, w + p * of_w.column + d * of_w.row, of_w.column, of_w.row, part, width);
        rows_of_panel(out + first * columns + p, columns, mine, is_turned ? part : of_x.row, panel,
                      bias ? bias + p : nullptr, part, d > 0, count, width);
      }
    }
  }
}

INLINE i64 scratch_of(Matrix of_x) { return DEEP * PANEL + (of_x.column != 1) * TURNED * DEEP; }

// Shapes: x [rows, depth], w [depth, columns]; bias [columns] or null; out [rows, columns] without gaps. `scratch` has for
// each thread `scratch_of` floats.
static void multiply(const f32* x, Matrix of_x, const f32* w, Matrix of_w, const f32* bias, f32* out, f32* scratch,
                     i64 threads, i64 rows, i64 depth, i64 columns) {
  const i64 panels = (columns + PANEL - 1) / PANEL;
  const bool is_even = columns % PANEL == 0 && panels % threads == 0;
  const bool by_columns = of_x.column == 1 && (is_even || panels >= 8 * threads);
  const i64 most = ((rows + threads - 1) / threads + 11) / 12 * 12;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (i64 thread = 0; thread < threads; thread++) {
    const i64 from = by_columns ? 0 : m::least(rows, thread * most), to = by_columns ? rows : m::least(rows, from + most);
    const i64 begin = by_columns ? panels * thread / threads * PANEL : 0;
    const i64 end = by_columns ? m::least(columns, panels * (thread + 1) / threads * PANEL) : columns;
    part_of_product(x, of_x, w, of_w, bias, out, scratch + thread * scratch_of(of_x), from, to, begin, end, depth, columns);
  }
}

// The same for a batch of matrices, each by one thread.
static void multiply_batch(const f32* x, i64 x_step, Matrix of_x, const f32* w, i64 w_step, Matrix of_w, f32* out,
                           f32* scratch, i64 threads, i64 batch, i64 rows, i64 depth, i64 columns) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (i64 thread = 0; thread < threads; thread++)
    for (i64 b = batch * thread / threads; b < batch * (thread + 1) / threads; b++)
      part_of_product(x + b * x_step, of_x, w + b * w_step, of_w, nullptr, out + b * rows * columns,
                      scratch + thread * scratch_of(of_x), 0, rows, 0, columns, depth, columns);
}
