// The gradients of attention whose scores a program changes: a tile of scores at a time, made again from q, k and the
// logarithms of the rows' sums.
//
//     p = e^(changed(s) - logs), s = scale q k^T      of changed(s):  g = p (gradient v^T - gradient . out + of_logs)
//     of v: p^T gradient      of q: scale derived(s, g) k      of k: scale derived(s, g)^T q
//
// A task is some of the tiles that read one head of keys. It adds up the gradients of the keys and values by itself;
// then those of all tasks of a head are added. After blocks.h, and after `change`, `derive` and `collect`, which are
// made of the program's functions: `collect` adds to the gradients of what the functions read.

constexpr i64 IN = (DEPTH + LANES - 1) / LANES * LANES, OUT = (OUT_DEPTH + LANES - 1) / LANES * LANES;

struct Gradients {
  const E *q, *k, *v, *out, *gradient;
  const f32 *logs, *of_logs;
  E *of_q, *of_k, *of_v;
  Strides at_q, at_k, at_v, at_out, at_gradient, at_of_q, at_of_k, at_of_v;
  i64 batch, heads, rows, keys, key_batch, key_heads, row_block, key_block;
  f32 scale;
  Blocks part, full;
  const i64* given;  // what the program's functions read
  f64* collected;    // for each thread, the gradients of that
  i64 collects, parts, padded;
  f32 *turned_keys, *turned_values, *wide_keys, *sums;
  i64* is_odd;
};

// A tile of rows, and room for its scores with a block of keys: as they are, weighed, derived and turned.
struct Tile {
  i64 b, h, first, count, head;
  f32 *q, *gradient, *of_q, *raw, *weights, *derived, *turned, *of_keys, *of_values;
  f64* collected;
  f32 logs[ROWS], shifts[ROWS];
  bool is_odd;
};
constexpr i64 ROOM = ROWS * (2 * IN + OUT + 4 * KEYS);  // floats

INLINE void add_turned(const Tile& t, const f32* scores, const f32* rows, i64 width, f32* sums, i64 count) {
  f32 ones[KEYS];
  for (i64 j = 0; j < KEYS; j++) ones[j] = 1.0f;
  m::transpose(t.turned, ROWS, scores, KEYS, count, t.count);
  product(sums, width, t.turned, ROWS, rows, width, t.count, ones, sums, width, count, width);
}

// The weights of a row's scores, and the gradients of these scores as the program has changed them.
INLINE void weigh(f32* x, f32* g, i64 count, f32 log_sum, f32 shift) {
#pragma omp simd
  for (i64 j = 0; j < count; j++) {
    const f32 p = m::exp_below(x[j] - log_sum);
    x[j] = p;
    g[j] = p * (g[j] + shift);
  }
}

// What keys from..from+count have for the rows of a tile. Returns which checks of the program's functions failed.
INLINE u64 take(const Gradients& a, Tile& t, i64 from, i64 place, i64 count, bool is_full) {
  f32 scales[ROWS], ones[ROWS];
  for (i64 r = 0; r < ROWS; r++) scales[r] = a.scale, ones[r] = 1.0f;
  const f32* keys = a.turned_keys + (t.head * a.padded + place) * DEPTH;
  const f32* values = a.turned_values + (t.head * a.padded + place) * OUT_DEPTH;
  const i64 even = round_up(t.count, EVEN);
  for (i64 p = 0; p < count; p += PANEL) {
    const i64 width = m::least(PANEL, count - p);
    product(t.weights + p, KEYS, t.q, IN, keys + p * DEPTH, PANEL, DEPTH, scales, nullptr, 0, even, width);
    product(t.derived + p, KEYS, t.gradient, OUT, values + p * OUT_DEPTH, PANEL, OUT_DEPTH, ones, nullptr, 0, even,
            width);
  }
  for (i64 r = 0; r < t.count; r++) __builtin_memcpy(t.raw + r * KEYS, t.weights + r * KEYS, count * sizeof(f32));
  u64 failed = change(is_full, t.weights, a.given, t.b, t.h, t.first, from, t.count, count);
  for (i64 r = 0; r < t.count; r++) weigh(t.weights + r * KEYS, t.derived + r * KEYS, count, t.logs[r], t.shifts[r]);
  failed |= collect(is_full, t.raw, t.derived, t.collected, a.given, t.b, t.h, t.first, from, t.count, count);
  failed |= derive(is_full, t.raw, t.derived, a.given, t.b, t.h, t.first, from, t.count, count);
  for (i64 r = t.count; r < even; r++)
    for (i64 j = 0; j < count; j++) t.derived[r * KEYS + j] = 0.0f;
  add_turned(t, t.weights, t.gradient, OUT, t.of_values + from * OUT, count);
  add_turned(t, t.derived, t.q, IN, t.of_keys + from * IN, count);
  product(t.of_q, IN, t.derived, KEYS, a.wide_keys + (t.head * a.keys + from) * IN, IN, count, ones, t.of_q, IN, even,
          IN);
  return failed;
}

// Keys that the tile does not read have weights of 0, or of NaN in a row with a score of NaN; 0 times what is NaN or
// infinite is NaN, as it is in eager.
INLINE void take_hidden(const Gradients& a, Tile& t, i64 row_block) {
  i64 parts, fulls;
  const i32* part = blocks_of(a.part, t.b, t.h, row_block, &parts);
  const i32* full = blocks_of(a.full, t.b, t.h, row_block, &fulls);
  for (i64 j = 0; j < a.keys; j++) {
    if (is_among(part, parts, j / a.key_block) || is_among(full, fulls, j / a.key_block)) continue;
    for (i64 r = 0; r < t.count; r++) {
      const f32 weight = t.logs[r] != t.logs[r] ? t.logs[r] : 0.0f;
      for (i64 d = 0; d < OUT; d++) t.of_values[j * OUT + d] += weight * t.gradient[r * OUT + d];
      for (i64 d = 0; d < IN; d++) {
        t.of_keys[j * IN + d] += 0.0f * t.q[r * IN + d];
        t.of_q[r * IN + d] += 0.0f * a.wide_keys[(t.head * a.keys + j) * IN + d];
      }
    }
  }
}

INLINE void start(const Gradients& a, Tile& t) {
  const i64 even = round_up(t.count, EVEN);
  t.is_odd = widen<DEPTH>(t.q, a.q + t.b * a.at_q.batch + t.h * a.at_q.head, a.at_q, t.first, t.count);
  t.is_odd |= widen<OUT_DEPTH>(t.gradient, a.gradient + t.b * a.at_gradient.batch + t.h * a.at_gradient.head,
                               a.at_gradient, t.first, t.count);
  for (i64 n = t.count * IN; n < even * IN; n++) t.q[n] = 0.0f;
  for (i64 n = t.count * OUT; n < even * OUT; n++) t.gradient[n] = 0.0f;
  for (i64 n = 0; n < even * IN; n++) t.of_q[n] = 0.0f;
  for (i64 r = 0; r < t.count; r++) {
    const i64 place = (t.b * a.heads + t.h) * a.rows + t.first + r;
    const E* out = a.out + t.b * a.at_out.batch + t.h * a.at_out.head + (t.first + r) * a.at_out.row;
    f32 total = 0.0f;
    for (i64 d = 0; d < OUT_DEPTH; d++) total += WIDEN(out[d * a.at_out.column]) * t.gradient[r * OUT + d];
    t.shifts[r] = (a.of_logs ? a.of_logs[place] / LN_2 : 0.0f) - total;
    t.logs[r] = a.logs[place] == -__builtin_inff() ? __builtin_inff() : a.logs[place] * LN_2;  // all is hidden
  }
}

INLINE void finish(const Gradients& a, const Tile& t) {
  for (i64 r = 0; r < t.count; r++) {
    E* of_q = a.of_q + t.b * a.at_of_q.batch + t.h * a.at_of_q.head + (t.first + r) * a.at_of_q.row;
    for (i64 d = 0; d < DEPTH; d++) of_q[d * a.at_of_q.column] = NARROW(t.of_q[r * IN + d] * a.scale);
  }
}

INLINE u64 derive_tile(const Gradients& a, Tile& t, i64 row_block) {
  start(a, t);
  const u64 failed = take_blocks(a, t, row_block);
  if (t.is_odd || a.is_odd[t.head]) take_hidden(a, t, row_block);
  finish(a, t);
  return failed;
}

// Some of the tiles that read a head of keys: those of all its heads of queries, and of all batches that it serves.
INLINE u64 derive_part(const Gradients& a, i64 task, f32* room) {
  const i64 head = task / a.parts, part = task % a.parts, group = a.heads / a.key_heads;
  const Tiling tiling = tiling_of(a.rows, a.row_block);
  f32 *of_keys = a.sums + task * a.keys * (IN + OUT), *of_values = of_keys + a.keys * IN;
  for (i64 n = 0; n < a.keys * (IN + OUT); n++) of_keys[n] = 0.0f;
  const i64 first_batch = a.key_batch > 1 ? head / a.key_heads : 0, batches = a.key_batch > 1 ? 1 : a.batch;
  f32 *gradient = room + ROWS * IN, *of_q = gradient + ROWS * OUT, *raw = of_q + ROWS * IN;
  u64 failed = 0;
  for (i64 n = part; n < batches * group * tiling.count; n += a.parts) {
    const i64 tile = n % tiling.count, both = n / tiling.count;
    i64 count;
    const i64 first = rows_of(tiling, a.rows, tile, &count);
    if (count <= 0) continue;
    Tile t{first_batch + both / group, head % a.key_heads * group + both % group, first, count, head, room, gradient, of_q,
           raw, raw + ROWS * KEYS, raw + 2 * ROWS * KEYS, raw + 3 * ROWS * KEYS, of_keys, of_values,
           a.collected + thread_number() * a.collects};
    failed |= derive_tile(a, t, tile / tiling.parts);
  }
  return failed;
}

INLINE void prepare(const Gradients& a, i64 head) {
  const i64 b = head / a.key_heads, h = head % a.key_heads;
  const E *keys = a.k + b * a.at_k.batch + h * a.at_k.head, *values = a.v + b * a.at_v.batch + h * a.at_v.head;
  turn_all<DEPTH>(a.turned_keys + head * a.padded * DEPTH, keys, a.at_k, a.keys, a.key_block);
  turn_all<OUT_DEPTH>(a.turned_values + head * a.padded * OUT_DEPTH, values, a.at_v, a.keys, a.key_block);
  a.is_odd[head] = widen<DEPTH>(a.wide_keys + head * a.keys * IN, keys, a.at_k, 0, a.keys);
}

// Adds up what the tasks of a head of keys have found.
INLINE void join(const Gradients& a, i64 head) {
  const i64 b = head / a.key_heads, h = head % a.key_heads;
  f32* sums = a.sums + head * a.parts * a.keys * (IN + OUT);
  for (i64 part = 1; part < a.parts; part++) {
    const f32* others = sums + part * a.keys * (IN + OUT);
#pragma omp simd
    for (i64 n = 0; n < a.keys * (IN + OUT); n++) sums[n] += others[n];
  }
  for (i64 j = 0; j < a.keys; j++) {
    E* of_k = a.of_k + b * a.at_of_k.batch + h * a.at_of_k.head + j * a.at_of_k.row;
    E* of_v = a.of_v + b * a.at_of_v.batch + h * a.at_of_v.head + j * a.at_of_v.row;
    const f32 *keys = sums + j * IN, *values = sums + a.keys * IN + j * OUT;
    for (i64 d = 0; d < DEPTH; d++) of_k[d * a.at_of_k.column] = NARROW(keys[d] * a.scale);
    for (i64 d = 0; d < OUT_DEPTH; d++) of_v[d * a.at_of_v.column] = NARROW(values[d]);
  }
}

// Returns which checks of the program's functions failed. `scratch` has room for what
// `cpu_backward.py` says.
static u64 derive_attention(Gradients a, f32* scratch, i64 threads) {
  const i64 heads = a.key_batch * a.key_heads;
  a.turned_keys = scratch;
  a.turned_values = a.turned_keys + heads * a.padded * DEPTH;
  a.wide_keys = a.turned_values + heads * a.padded * OUT_DEPTH;
  a.sums = a.wide_keys + heads * a.keys * IN;
  f32* own = a.sums + heads * a.parts * a.keys * (IN + OUT);
  u64 failed = 0;
#pragma omp parallel num_threads(threads) reduction(| : failed)
  {
#pragma omp for schedule(static)
    for (i64 head = 0; head < heads; head++) prepare(a, head);
#pragma omp for schedule(dynamic)
    for (i64 task = 0; task < heads * a.parts; task++) failed |= derive_part(a, task, own + thread_number() * ROOM);
#pragma omp for schedule(static)
    for (i64 head = 0; head < heads; head++) join(a, head);
  }
  return failed;
}
