// Attention whose scores a program changes: out = softmax(changed(scale q k^T)) v, a tile of scores at a time, so that
// no more of them is ever stored. A block mask says which blocks of keys a block of rows reads at all.
//
// Keys are turned once to lie along the vectors, for all heads. Then each tile of rows goes through the blocks of keys
// that it reads and keeps for each row the greatest score, the sum of e^(score - greatest) and the products with v, all
// of which are rescaled when a greater score turns up. After blocks.h and `change`, which is made of the program's
// functions.

constexpr i64 OUT = (OUT_DEPTH + LANES - 1) / LANES * LANES;

// A row's greatest score, the sum of e^(score - greatest), and whether a score is NaN.
struct Row {
  f32 top, total;
  bool is_nan;
};

struct Attention {
  const E *q, *k, *v;
  E* out;
  f32 *logs, *tops;
  Strides of_q, of_k, of_v, of_out;
  i64 batch, heads, rows, keys, key_batch, key_heads, row_block, key_block;
  f32 scale;
  Blocks part, full;
  const i64* given;  // what the program's functions read
  f32 *turned, *values;
  i64 *is_odd, padded;
};

// A row of n scores becomes e^(score - greatest); what the row has so far is rescaled where a greater one turns up.
INLINE void weigh(f32* x, i64 n, f32* sums, Row* row) {
  const i64 whole = round_up(n, LANES);
  for (i64 j = n; j < whole; j++) x[j] = -__builtin_inff();
  f32 top = row->top, total = 0.0f;
#pragma omp simd reduction(max : top)
  for (i64 j = 0; j < whole; j++) top = x[j] > top ? x[j] : top;
  if (top == __builtin_inff() || top == -__builtin_inff()) {
    for (i64 j = 0; j < n; j++) row->is_nan |= x[j] != x[j];
  }
  if (top == -__builtin_inff()) {
    for (i64 j = 0; j < whole; j++) x[j] = 0.0f;
    return;
  }
  if (top > row->top) {
    const f32 share = row->top == -__builtin_inff() ? 0.0f : m::exp(row->top - top);
    row->top = top;
    row->total *= share;
#pragma omp simd
    for (i64 d = 0; d < OUT; d++) sums[d] *= share;
  }
#pragma omp simd reduction(+ : total)
  for (i64 j = 0; j < whole; j++) {
    const f32 e = m::exp_below(x[j] - top);
    x[j] = e;
    total += e;
  }
  row->total += total;
  row->is_nan |= total != total && top < __builtin_inff();
}

// A tile of rows on its way through the keys.
struct Tile {
  i64 b, h, first, count, head;
  f32 *q, *scores, *sums;
  Row rows[ROWS];
};

// What keys from..from+count add to the rows of a tile. Returns which checks of the program's functions failed.
INLINE u64 take(const Attention& a, Tile& t, i64 from, i64 place, i64 count, bool is_full) {
  f32 scales[ROWS], ones[ROWS];
  for (i64 r = 0; r < ROWS; r++) scales[r] = a.scale, ones[r] = 1.0f;
  const f32* turned = a.turned + (t.head * a.padded + place) * DEPTH;
  const i64 even = round_up(t.count, EVEN);
  for (i64 p = 0; p < count; p += PANEL)
    product(t.scores + p, KEYS, t.q, DEPTH, turned + p * DEPTH, PANEL, DEPTH, scales, nullptr, 0, even,
            m::least(PANEL, count - p));
  const u64 failed = change(is_full, t.scores, a.given, t.b, t.h, t.first, from, t.count, count);
  for (i64 r = 0; r < t.count; r++) weigh(t.scores + r * KEYS, count, t.sums + r * OUT, t.rows + r);
  for (i64 r = t.count; r < even; r++)
    for (i64 j = 0; j < count; j++) t.scores[r * KEYS + j] = 0.0f;
  product(t.sums, OUT, t.scores, KEYS, a.values + (t.head * a.keys + from) * OUT, OUT, count, ones, t.sums, OUT, even,
          OUT);
  return failed;
}

// The rows of a tile over the keys that they do not read: 0 times what is NaN or infinite is NaN, as it is in eager.
INLINE void take_hidden(const Attention& a, Tile& t, i64 row_block) {
  i64 parts, fulls;
  const i32 *part = blocks_of(a.part, t.b, t.h, row_block, &parts), *full = blocks_of(a.full, t.b, t.h, row_block, &fulls);
  for (i64 j = 0; j < a.keys; j++) {
    if (is_among(part, parts, j / a.key_block) || is_among(full, fulls, j / a.key_block)) continue;
    const f32* value = a.values + (t.head * a.keys + j) * OUT;
    for (i64 r = 0; r < t.count; r++)
      for (i64 d = 0; d < OUT; d++) t.sums[r * OUT + d] += 0.0f * value[d];
  }
}

INLINE void start(const Attention& a, Tile& t) {
  const E* q = a.q + t.b * a.of_q.batch + t.h * a.of_q.head + t.first * a.of_q.row;
  const i64 even = round_up(t.count, EVEN);
  for (i64 r = 0; r < even; r++)
    for (i64 d = 0; d < DEPTH; d++)
      t.q[r * DEPTH + d] = r < t.count ? WIDEN(q[r * a.of_q.row + d * a.of_q.column]) : 0.0f;
  for (i64 n = 0; n < even * OUT; n++) t.sums[n] = 0.0f;
  for (i64 r = 0; r < t.count; r++) t.rows[r] = Row{-__builtin_inff(), 0.0f, false};
}

// A row that reads no key is zero, and both its logarithm and its greatest score are -inf.
INLINE void finish(const Attention& a, const Tile& t) {
  for (i64 r = 0; r < t.count; r++) {
    const Row row = t.rows[r];
    const f32 nan = __builtin_nanf(""), share = row.is_nan ? nan : row.total == 0.0f ? 1.0f : 1.0f / row.total;
    E* out = a.out + t.b * a.of_out.batch + t.h * a.of_out.head + (t.first + r) * a.of_out.row;
    for (i64 d = 0; d < OUT_DEPTH; d++) out[d * a.of_out.column] = NARROW(t.sums[r * OUT + d] * share);
    const i64 place = (t.b * a.heads + t.h) * a.rows + t.first + r;
    const bool is_plain = row.top < __builtin_inff() && row.total > 0.0f;
    a.tops[place] = (row.is_nan ? nan : row.top) / LN_2;
    a.logs[place] = (row.is_nan ? nan : is_plain ? row.top + m::log(row.total) : row.top) / LN_2;
  }
}

INLINE u64 attend_tile(const Attention& a, Tile& t, i64 row_block) {
  start(a, t);
  const u64 failed = take_blocks(a, t, row_block);
  if (a.is_odd[t.head]) take_hidden(a, t, row_block);
  finish(a, t);
  return failed;
}

// Turns all keys, and widens all values.
INLINE void prepare(const Attention& a, i64 threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (i64 head = 0; head < a.key_batch * a.key_heads; head++) {
    const i64 b = head / a.key_heads, h = head % a.key_heads;
    const E* keys = a.k + b * a.of_k.batch + h * a.of_k.head;
    const E* values = a.v + b * a.of_v.batch + h * a.of_v.head;
    turn_all<DEPTH>(a.turned + head * a.padded * DEPTH, keys, a.of_k, a.keys, a.key_block);
    a.is_odd[head] = widen<OUT_DEPTH>(a.values + head * a.keys * OUT, values, a.of_v, 0, a.keys);
  }
}

// Returns which checks of the program's functions failed. `scratch` has room for what `cpu.py` says.
static u64 attend(Attention a, f32* scratch, i64 threads) {
  const Tiling tiling = tiling_of(a.rows, a.row_block);
  const i64 all_keys = a.key_batch * a.key_heads;
  a.turned = scratch;
  a.values = a.turned + all_keys * a.padded * DEPTH;
  f32* own = a.values + all_keys * a.keys * OUT;
  prepare(a, threads);
  u64 failed = 0;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(| : failed)
  for (i64 task = 0; task < a.batch * a.heads * tiling.count; task++) {
    const i64 both = task / tiling.count, tile = tiling.count - 1 - task % tiling.count;
    i64 count;
    const i64 first = rows_of(tiling, a.rows, tile, &count);
    if (count <= 0) continue;
    f32* room = own + thread_number() * ROWS * (DEPTH + KEYS + OUT);
    Tile t{both / a.heads, both % a.heads, first, count, 0, room, room + ROWS * DEPTH, room + ROWS * (DEPTH + KEYS)};
    t.head = (a.key_batch > 1 ? t.b : 0) * a.key_heads + t.h / (a.heads / a.key_heads);
    failed |= attend_tile(a, t, tile / tiling.parts);
  }
  return failed;
}
