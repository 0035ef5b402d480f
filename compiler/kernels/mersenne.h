// Dropout with the numbers of torch's CPU generator, drawn by the block instead of one by one. No header is included.
//
// torch's generator is mt19937: 624 words that are made and tempered together, every loop here vector code. A number for
// dropout is two of them, the first's low 21 bits over the second: 53 bits, kept where they are below p * 2^53.
typedef unsigned char u8;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// The bytes of `torch.Generator.get_state()`. `left` is 1 more than the words that are not drawn yet.
struct State {
  u64 seed;
  i32 left, seeded;
  u64 next, words[624];
};

static inline u32 twisted(u32 a, u32 b) {
  return (((a & 0x80000000u) | (b & 0x7fffffffu)) >> 1) ^ (b & 1u ? 0x9908b0dfu : 0u);
}

static void make_words(u32* words) {
#pragma omp simd
  for (int j = 0; j < 227; j++) words[j] = words[j + 397] ^ twisted(words[j], words[j + 1]);
#pragma omp simd safelen(64)
  for (int j = 227; j < 623; j++) words[j] = words[j - 227] ^ twisted(words[j], words[j + 1]);
  words[623] = words[396] ^ twisted(words[623], words[0]);
}

static void temper(const u32* words, u32* drawn, i64 count) {
#pragma omp simd
  for (i64 j = 0; j < count; j++) {
    u32 y = words[j];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    drawn[j] = y ^ (y >> 18);
  }
}

// mask[i] = a number is below `below` / 2^53, and where there is `x`, out[i] = x[i] * mask[i] * scale.
extern "C" void dropout(State* state, u64 below, float scale, i64 count, u8* mask, const float* x, float* out) {
  u32 words[624], drawn[625];
  for (int j = 0; j < 624; j++) words[j] = (u32)state->words[j];
  i64 left = state->left - 1, next = (i64)state->next, pending = 0;
  const u32 high = (u32)(below >> 32), low = (u32)below;
  for (i64 done = 0; done < count;) {
    if (left == 0) {
      make_words(words);
      left = 624, next = 0;
    }
    const i64 wanted = 2 * (count - done) - pending, taken = left < wanted ? left : wanted;
    temper(words + next, drawn + pending, taken);
    left -= taken, next += taken, pending += taken;
    const i64 pairs = pending / 2;
    u8* kept = mask + done;
#pragma omp simd
    for (i64 j = 0; j < pairs; j++) {
      const u32 first = drawn[2 * j] & 0x1fffffu, second = drawn[2 * j + 1];
      kept[j] = (first < high) | ((first == high) & (second < low));
    }
    if (x) {
      const float* from = x + done;
      float* to = out + done;
#pragma omp simd
      for (i64 j = 0; j < pairs; j++) to[j] = from[j] * (float)kept[j] * scale;
    }
    drawn[0] = drawn[pending - 1];
    pending -= 2 * pairs, done += pairs;
  }
  for (int j = 0; j < 624; j++) state->words[j] = words[j];
  state->left = (i32)left + 1, state->next = (u64)next;
}
