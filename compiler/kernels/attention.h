// Attention of float32 for heads of DEPTH elements: out = softmax(scale q k^T + mask) v, a block of rows at a time.
//
// Of a block of rows all scores are made, in a buffer that fits in the second cache; their rows become probabilities in
// place, and a product with v ends the block. Both products are those of tiles.h; keys are turned to lie along their
// vectors once a head. Panels of keys before the first and after the last that the mask shows to any row of the block are
// left out. After tiles.h and `DEPTH`.

constexpr f32 HIDDEN = -1e36f;  // a score below this has no weight beside one above it

struct Strides {
  i64 batch, head, row, column;
};

// x[j] += mask[j * step] for j < n
INLINE void add_mask(f32* x, const f32* mask, i64 step, i64 n) {
  if (step == 1) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) x[j] += mask[j];
  } else {
    for (i64 j = 0; j < n; j++) x[j] += mask[j * step];
  }
}

// Whether a mask hides keys from..to from each of the rows: by -inf, or by what no score makes up for.
INLINE bool is_hidden(const f32* mask, i64 step, i64 from, i64 to, i64 rows) {
  for (i64 r = 0; r < rows; r++) {
    i32 seen = 0;
#pragma omp simd reduction(| : seen)
    for (i64 j = from; j < to; j++) seen |= !(mask[r * step + j] < 10.0f * HIDDEN);
    if (seen) return false;
  }
  return true;
}

// The panels between `from` and `to` without those at the ends that a mask hides from all rows of a block.
INLINE void visible(const f32* mask, i64 step, i64 rows, i64* from, i64* to) {
  while (*to > PANEL && is_hidden(mask, step, (*to - 1) / PANEL * PANEL, *to, rows)) *to = (*to - 1) / PANEL * PANEL;
  while (*from + PANEL < *to && is_hidden(mask, step, *from, *from + PANEL, rows)) *from += PANEL;
}

// The keys of a head in panels, to lie along the vectors; what is beyond the last one is zero.
INLINE void turn(f32* turned, const f32* from, i64 step, i64 keys) {
  for (i64 p = 0; p < keys; p += PANEL) {
    const i64 width = m::least(PANEL, keys - p);
    m::transpose(turned + p * DEPTH, PANEL, from + p * step, step, DEPTH, width);
    for (i64 d = 0; width < PANEL && d < DEPTH; d++)
      for (i64 j = width; j < PANEL; j++) turned[p * DEPTH + d * PANEL + j] = 0.0f;
  }
}

// A row of n scores becomes e^(score - top), and zeros up to a whole number of vectors; returns 1 over their sum, and the
// sum's logarithm in `log_sum`. Of a row in which every score is -inf nothing is left, as in ATen's kernel. A sum that is
// NaN is not what that kernel gives.
INLINE f32 weigh(f32* x, i64 n, f32* log_sum) {
  const i64 whole = (n + LANES - 1) / LANES * LANES;
  f32 top = -__builtin_inff(), total = 0.0f;
  for (i64 j = n; j < whole; j++) x[j] = top;
#pragma omp simd reduction(max : top)
  for (i64 j = 0; j < whole; j++) top = x[j] > top ? x[j] : top;
  i32 others = 0;
  if (top == -__builtin_inff()) {
    for (i64 j = 0; j < n; j++) others |= x[j] != top;
    for (i64 j = 0; j < whole; j++) x[j] = 0.0f;
    *log_sum = 0.0f;
    return others ? __builtin_nanf("") : 0.0f;
  }
#pragma omp simd reduction(+ : total)
  for (i64 j = 0; j < whole; j++) {
    f32 e = m::exp_below(x[j] - top);
    x[j] = e;
    total += e;
  }
  *log_sum = top + m::log(total);
  return 1.0f / total;
}

INLINE bool is_finite(const f32* x, i64 step, i64 rows) {
  f32 nothing = 0.0f;
  for (i64 r = 0; r < rows; r++) {
#pragma omp simd reduction(+ : nothing)
    for (i64 d = 0; d < DEPTH; d++) nothing += x[r * step + d] * 0.0f;
  }
  return nothing == 0.0f;
}

// One head: its operands, and room for its turned keys and the scores of a block of rows.
struct Head {
  const f32 *q, *k, *v, *mask;
  f32 *out, *logs, *turned, *scores;
  Strides of_q, of_k, of_v, of_out, of_mask;
  i64 heads, rows, keys;
  bool is_causal;
  f32 scale;
  i32 is_regular;  // whether all keys and values are finite; -1 as long as nobody has asked
};

INLINE bool is_regular(Head& head) {
  if (head.is_regular < 0)
    head.is_regular = is_finite(head.v, head.of_v.row, head.keys) && is_finite(head.k, head.of_k.row, head.keys);
  return head.is_regular;
}

// The probabilities of rows first..first+count for keys from..to, before they are divided by their sums: `shares` is 1 over
// these. Returns whether each row sees some of the keys.
INLINE bool weigh_rows(const Head& head, i64 first, i64 count, i64 from, i64 to, f32* shares) {
  const i64 padded = (head.keys + PANEL - 1) / PANEL * PANEL;
  f32 scales[ROWS];
  for (i64 r = 0; r < ROWS; r++) scales[r] = head.scale;
  for (i64 p = from; p < to; p += PANEL)
    product(head.scores + p, padded, head.q + first * head.of_q.row, head.of_q.row, head.turned + p * DEPTH, PANEL, DEPTH,
            scales, nullptr, 0, count, m::least(PANEL, to - p));
  bool sees_some = true;
  for (i64 r = 0; r < count; r++) {
    f32 *row = head.scores + r * padded + from, *log_sum = head.logs + (first + r) * head.heads;
    const i64 seen = (head.is_causal ? m::least(head.keys, first + r + 1) : to) - from, step = head.of_mask.column;
    if (head.mask) add_mask(row, head.mask + (first + r) * head.of_mask.row + from * step, step, seen);
    shares[r] = weigh(row, seen, log_sum);
    for (i64 j = seen; j < to - from; j++) row[j] = 0.0f;
    sees_some &= shares[r] > 0.0f && *log_sum > HIDDEN;
  }
  return sees_some;
}

// The results of a block of rows. Returns whether they are those of ATen's kernel.
INLINE bool attend_rows(Head& head, i64 first, i64 count) {
  i64 from = 0, to = head.is_causal ? m::least(head.keys, first + count) : head.keys;
  const f32* masks = head.is_causal || head.of_mask.column != 1 ? nullptr : head.mask;
  if (masks) visible(masks + first * head.of_mask.row, head.of_mask.row, count, &from, &to);
  const bool is_part = !head.is_causal && (from > 0 || to < head.keys);
  if (is_part && !is_regular(head)) from = 0, to = head.keys;  // what is not finite shows through a mask
  f32 shares[ROWS], ones[ROWS];
  if (!weigh_rows(head, first, count, from, to, shares) && is_part && (from > 0 || to < head.keys)) {
    from = 0, to = head.keys;  // a row sees nothing in this part
    weigh_rows(head, first, count, from, to, shares);
  }
  const i64 padded = (head.keys + PANEL - 1) / PANEL * PANEL, step = head.of_out.row;
  f32* out = head.out + first * step;
  for (i64 r = 0; r < ROWS; r++) ones[r] = 1.0f;
  for (i64 p = from; p < to; p += SUMMED) {
    const bool is_last = p + SUMMED >= to;
    product(out, step, head.scores + p, padded, head.v + p * head.of_v.row, head.of_v.row, is_last ? to - p : SUMMED,
            is_last ? shares : ones, p > from ? out : nullptr, step, count, DEPTH);
  }
  bool is_right = true;
  for (i64 r = 0; r < count; r++) is_right &= shares[r] <= 1.0f;
  if (head.is_causal && first + count == head.rows)  // the last row reads every value
    is_right &= is_finite(out + (count - 1) * step, 0, 1);
  return is_right;
}

// Shapes: q, out [batch, heads, rows, DEPTH], k, v [batch, heads, keys, DEPTH], logs [batch, heads, rows] by the strides
// (batch, row, head); mask may be null. `scratch` has for each thread room for (DEPTH + ROWS) * (keys + PANEL) floats.
// Returns whether the result is that of ATen's kernel: not where a score is NaN or inf, nor where a value that only
// later rows read is.
static bool attend(const f32* q, const f32* k, const f32* v, const f32* mask, f32* out, f32* logs, f32* scratch,
                   i64 threads, i64 batch, i64 heads, i64 rows, i64 keys, bool is_causal, f32 scale, Strides of_q,
                   Strides of_k, Strides of_v, Strides of_out, Strides of_mask) {
  const i64 padded = (keys + PANEL - 1) / PANEL * PANEL;
  const i64 parts = (rows + ROWS - 1) / ROWS, most = ((rows + parts - 1) / parts + 11) / 12 * 12;
  const i64 blocks = (rows + most - 1) / most, tasks = batch * heads * blocks;
  i32 odd = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : odd)
  for (i64 thread = 0; thread < threads; thread++) {
    f32* turned = scratch + thread * (DEPTH + ROWS) * (keys + PANEL);
    i64 head_before = -1;
    Head head;
    for (i64 task = tasks * thread / threads; task < tasks * (thread + 1) / threads; task++) {
      const i64 both = task / blocks, b = both / heads, h = both % heads, first = task % blocks * most;
      if (both != head_before) {
        head_before = both;
        head = Head{q + b * of_q.batch + h * of_q.head,
                    k + b * of_k.batch + h * of_k.head,
                    v + b * of_v.batch + h * of_v.head,
                    mask ? mask + b * of_mask.batch + h * of_mask.head : nullptr,
                    out + b * of_out.batch + h * of_out.head,
                    logs + b * rows * heads + h,
                    turned,
                    turned + padded * DEPTH,
                    of_q, of_k, of_v, of_out, of_mask, heads, rows, keys, is_causal, scale, -1};
        turn(turned, head.k, of_k.row, keys);
        if (is_causal && rows < keys) odd |= !is_finite(head.v, of_v.row, keys);
      }
      odd |= !attend_rows(head, first, m::least(most, rows - first));
    }
  }
  return !odd;
}
