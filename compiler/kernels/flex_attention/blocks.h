// What attention with a block mask reads, forward and backward. After tiles.h, and after what `cpu.py` writes:
// `E`, the type of an element, with `WIDEN` and `NARROW`, and `DEPTH` and `OUT_DEPTH`, the elements of a head of q and v.

constexpr i64 EVEN = LANES == 8 ? 6 : 12;  // tiles of so many rows are whole
constexpr f32 LN_2 = 0.693147180559945f;

struct Strides {
  i64 batch, head, row, column;
};

// Which blocks of keys each block of rows reads: counts[batch, head, block] of indices[batch, head, block, .].
struct Blocks {
  const i32 *counts, *indices;
  i64 batches, heads, rows, most;
};

INLINE i64 round_up(i64 n, i64 to) { return (n + to - 1) / to * to; }

// Rows first..first+count of a head, side by side; what is beyond the last of a panel is zero.
template <int depth>
INLINE void turn(f32* turned, const E* head, const Strides& of, i64 first, i64 count) {
  f32 line[PANEL * depth];
  for (i64 j = 0; j < PANEL; j++)
    for (i64 d = 0; d < depth; d++)
      line[j * depth + d] = j < count ? WIDEN(head[(first + j) * of.row + d * of.column]) : 0.0f;
  m::transpose(turned, PANEL, line, depth, depth, PANEL);
}

// The rows of a head, each block of keys in panels of its own.
template <int depth>
INLINE void turn_all(f32* turned, const E* head, const Strides& of, i64 keys, i64 key_block) {
  const i64 padded = round_up(key_block, PANEL);
  for (i64 block = 0; block * key_block < keys; block++)
    for (i64 p = 0; p < padded; p += PANEL) {
      const i64 first = block * key_block + p, end = m::least(keys, (block + 1) * key_block);
      if (first < end)
        turn<depth>(turned + (block * padded + p) * depth, head, of, first, m::least(PANEL, end - first));
    }
}

// Rows of a head in whole vectors; returns whether one of their elements is NaN or infinite.
template <int depth>
INLINE bool widen(f32* wide, const E* head, const Strides& of, i64 first, i64 count) {
  constexpr i64 width = (depth + LANES - 1) / LANES * LANES;
  f32 nothing = 0.0f;
  for (i64 j = 0; j < count; j++) {
    const E* row = head + (first + j) * of.row;
    for (i64 d = 0; d < depth; d++) {
      const f32 x = WIDEN(row[d * of.column]);
      wide[j * width + d] = x;
      nothing += x * 0.0f;
    }
    for (i64 d = depth; d < width; d++) wide[j * width + d] = 0.0f;
  }
  return nothing != 0.0f;
}

INLINE const i32* blocks_of(const Blocks& blocks, i64 b, i64 h, i64 row_block, i64* count) {
  if (!blocks.counts || row_block >= blocks.rows) return *count = 0, nullptr;
  const i64 place = ((blocks.batches > 1 ? b : 0) * blocks.heads + (blocks.heads > 1 ? h : 0)) * blocks.rows;
  *count = m::least(blocks.counts[place + row_block], blocks.most);
  return blocks.indices + (place + row_block) * blocks.most;
}

INLINE bool is_among(const i32* blocks, i64 count, i64 block) {
  for (i64 n = 0; n < count; n++)
    if (blocks[n] == block) return true;
  return false;
}

// How rows are shared among tiles: none of them goes through two blocks of rows.
struct Tiling {
  i64 block, parts, height, count;
};

INLINE Tiling tiling_of(i64 rows, i64 row_block) {
  const i64 block = m::least(row_block, rows), parts = (block + ROWS - 1) / ROWS;
  return Tiling{block, parts, m::least(ROWS, round_up((block + parts - 1) / parts, EVEN)),
                (rows + block - 1) / block * parts};
}

// The first row of a tile, and how many there are, which may be none.
INLINE i64 rows_of(const Tiling& tiling, i64 rows, i64 tile, i64* count) {
  const i64 block = tile / tiling.parts, first = block * tiling.block + tile % tiling.parts * tiling.height;
  *count = m::least(m::least(rows, (block + 1) * tiling.block), first + tiling.height) - first;
  return first;
}

// A block of keys that a tile reads, forward or backward, by the `take` of either; none where there is no such block.
template <class Kernel, class Tile>
INLINE u64 take_block(const Kernel& a, Tile& t, i64 block, bool is_full) {
  const i64 first = block * a.key_block, count = m::least(a.key_block, a.keys - first);
  if (block < 0 || count <= 0) return 0;
  u64 failed = 0;
  for (i64 at = 0; at < count; at += KEYS)
    failed |= take(a, t, first + at, block * round_up(a.key_block, PANEL) + at, m::least(KEYS, count - at), is_full);
  return failed;
}

// All blocks of keys that a tile reads. Returns which checks of the program's functions failed.
template <class Kernel, class Tile>
INLINE u64 take_blocks(const Kernel& a, Tile& t, i64 row_block) {
  u64 failed = 0;
  i64 count;
  const i32* blocks = blocks_of(a.part, t.b, t.h, row_block, &count);
  for (i64 n = 0; n < count; n++) failed |= take_block(a, t, blocks[n], false);
  blocks = blocks_of(a.full, t.b, t.h, row_block, &count);
  for (i64 n = 0; n < count; n++) failed |= take_block(a, t, blocks[n], true);
  return failed;
}
