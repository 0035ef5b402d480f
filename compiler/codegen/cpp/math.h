// Scalar types and branch-free inline math of the generated kernels. No header is included: a unit compiles in ~0.1 s.
//
// Every function is straight-line code over selects, so that `#pragma omp simd` turns a loop that calls it into vector
// code; fmod, sin, cos and tan have a slow path besides, for few numbers. Accuracy and speed are measured by
// suites/math_accuracy.py and stated in docs/math.md: at most 2 ulp in float32 for every input, at most 4.5 in float64.
// The polynomials interpolate at Chebyshev nodes of the stated intervals (gelu's have the least greatest relative error).
// NaN, infinities, signed zeros and subnormal results are those of libm.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
typedef unsigned short f16;  // bits; arithmetic happens in f32
typedef unsigned short bf16;

#define INLINE static inline __attribute__((always_inline))

// Of a kernel that computes much: vectors of 64 bytes. GCC prefers those of 32 on most machines that have both.
#if defined(__AVX512F__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target("prefer-vector-width=512")))
#else
#define WIDE_VECTORS
#endif

namespace m {

template <class To, class From>
INLINE To bits(From x) {
  return __builtin_bit_cast(To, x);
}

// a*b + c with one rounding where the machine has it; elsewhere a call would cost more than the last bit is worth.
#ifdef __FP_FAST_FMAF
INLINE f32 mad(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
#else
INLINE f32 mad(f32 a, f32 b, f32 c) { return a * b + c; }
#endif
#ifdef __FP_FAST_FMA
INLINE f64 mad(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
#else
INLINE f64 mad(f64 a, f64 b, f64 c) { return a * b + c; }
#endif

// A product that no sum takes into an operation of its own. GCC 12 makes vfmaddsub of neighbours a*b - c*d and a*d + b*c,
// whatever -ffp-contract says.
#if __has_builtin(__builtin_assoc_barrier)
template <class T>
INLINE T rounded(T x) { return __builtin_assoc_barrier(x); }
#else
template <class T>
INLINE T rounded(T x) { return x; }
#endif

// An integer apart from how it was made, before it becomes a float. To GCC, which knows that nobody traps, (f32)(i64)x
// is trunc(x), though it is not for what no integer holds, nor for -0.5, whose sign an integer loses.
#if defined(__clang__)
template <class T>
INLINE T apart(T x) { return x; }
#elif __has_builtin(__builtin_assoc_barrier)
template <class T>
INLINE T apart(T x) { return __builtin_assoc_barrier(x); }
#else
template <class T>
INLINE T apart(T x) {
  asm("" : "+r"(x));
  return x;
}
#endif

// ---- conversions ----

// Floats as integers, with what a processor says of those that no integer holds: the least one. GCC has none of its own
// to say for constants, of which NaN is 0 to it.
INLINE i32 to_i32(f32 x) { return (x >= -0x1p31f) & (x < 0x1p31f) ? (i32)x : -2147483647 - 1; }
INLINE i32 to_i32(f64 x) { return (x > -2147483649.0) & (x < 2147483648.0) ? (i32)x : -2147483647 - 1; }
INLINE i64 to_i64(f32 x) { return (x >= -0x1p63f) & (x < 0x1p63f) ? (i64)x : -9223372036854775807LL - 1; }
INLINE i64 to_i64(f64 x) { return (x >= -0x1p63) & (x < 0x1p63) ? (i64)x : -9223372036854775807LL - 1; }

INLINE f32 from_bf16(bf16 x) { return bits<f32>((u32)x << 16); }

INLINE bf16 to_bf16(f32 x) {
  u32 u = bits<u32>(x);
  u32 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (bf16)(x != x ? 0x7fc0u : rounded);
}

INLINE f32 from_f16(f16 x) {
  u32 magnitude = (u32)(x & 0x7fff) << 13;
  u32 value = bits<u32>(bits<f32>(magnitude) * 0x1p112f);  // exact, subnormals too
  value = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : value;
  return bits<f32>(value | ((u32)(x & 0x8000) << 16));
}

INLINE f16 to_f16(f32 x) {
  u32 u = bits<u32>(x);
  u32 a = u & 0x7fffffffu;
  u32 normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  u32 tiny = bits<u32>(bits<f32>(a) + 0.5f) - 0x3f000000u;  // an ulp of 0.5 is float16's least subnormal
  u32 value = a < 0x38800000u ? tiny : normal;
  value = a >= 0x477ff000u ? 0x7c00u : value;
  value = a > 0x7f800000u ? 0x7e00u : value;
  return (f16)(value | ((u >> 16) & 0x8000u));
}

// ---- selection and sign ----

// Two selects, not one of two conditions: of several in a row GCC makes branches, which no loop is vectorised with.
template <class T>
INLINE T maximum(T a, T b) {
  T larger = a > b ? a : b;
  return a != a ? a : larger;
}
template <class T>
INLINE T minimum(T a, T b) {
  T smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

// One step of a scan: an extremum so far changes seldom. A branch that is foreseen takes no time, where a selection
// would wait for the one before. The empty statement keeps GCC from making a selection of it. Of equal fractions the
// later one is kept, as zeros have signs. A NaN stays.
template <class T>
INLINE void raise(T &total, T value) {
  bool is_new = (T)0.5 != 0 ? !(value < total) : value > total;
  if (__builtin_expect(is_new, 0)) {
    asm("");
    total = total != total ? total : value;
  }
}
template <class T>
INLINE void lower(T &total, T value) {
  bool is_new = (T)0.5 != 0 ? !(value > total) : value < total;
  if (__builtin_expect(is_new, 0)) {
    asm("");
    total = total != total ? total : value;
  }
}

template <class T>
INLINE T fmax(T a, T b) {
  return (a > b) | (b != b) ? a : b;
}
template <class T>
INLINE T fmin(T a, T b) {
  return (a < b) | (b != b) ? a : b;
}
INLINE f32 abs(f32 x) { return __builtin_fabsf(x); }
INLINE f64 abs(f64 x) { return __builtin_fabs(x); }
INLINE f32 copysign(f32 x, f32 y) { return __builtin_copysignf(x, y); }
INLINE f64 copysign(f64 x, f64 y) { return __builtin_copysign(x, y); }
INLINE bool signbit(f32 x) { return bits<i32>(x) < 0; }
INLINE bool signbit(f64 x) { return bits<i64>(x) < 0; }
INLINE bool isinf(f32 x) { return abs(x) == __builtin_inff(); }
INLINE bool isinf(f64 x) { return abs(x) == __builtin_inf(); }
INLINE bool isfinite(f32 x) { return abs(x) < __builtin_inff(); }
INLINE bool isfinite(f64 x) { return abs(x) < __builtin_inf(); }
template <class T>
INLINE T sign(T x) {
  return (T)((x > (T)0) - (x < (T)0));
}
INLINE f32 floor(f32 x) { return __builtin_floorf(x); }
INLINE f64 floor(f64 x) { return __builtin_floor(x); }
INLINE f32 ceil(f32 x) { return __builtin_ceilf(x); }
INLINE f64 ceil(f64 x) { return __builtin_ceil(x); }
INLINE f32 trunc(f32 x) { return __builtin_truncf(x); }
INLINE f64 trunc(f64 x) { return __builtin_trunc(x); }
INLINE f32 round(f32 x) { return __builtin_rintf(x); }
INLINE f64 round(f64 x) { return __builtin_rint(x); }
INLINE f32 sqrt(f32 x) { return __builtin_sqrtf(x); }
INLINE f64 sqrt(f64 x) { return __builtin_sqrt(x); }
// The next number towards b; by its bits, that are in the order of the numbers of one sign.
INLINE f32 nextafter(f32 a, f32 b) {
  i32 u = bits<i32>(a);
  i32 away = (b > a) == (a > 0.0f) ? 1 : -1;
  f32 next = a == 0.0f ? copysign(0x1p-149f, b) : bits<f32>(u + away);
  next = a == b ? b : next;
  return (a != a) | (b != b) ? a + b : next;
}
INLINE f64 nextafter(f64 a, f64 b) {
  i64 u = bits<i64>(a);
  i64 away = (b > a) == (a > 0.0) ? 1 : -1;
  f64 next = a == 0.0 ? copysign(0x1p-1074, b) : bits<f64>(u + away);
  next = a == b ? b : next;
  return (a != a) | (b != b) ? a + b : next;
}
INLINE f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INLINE f64 fma(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

INLINE f32 hypot(f32 a, f32 b) {
  f64 x = a, y = b;
  f32 length = (f32)__builtin_sqrt(x * x + y * y);  // squares of float32 neither overflow nor vanish in float64
  return isinf(a) | isinf(b) ? __builtin_inff() : length;
}
INLINE f64 hypot(f64 a, f64 b) {
  f64 x = abs(a), y = abs(b), most = x > y ? x : y;
  f64 scale = most > 0x1p500 ? 0x1p-600 : most < 0x1p-400 ? 0x1p600 : 1.0;
  f64 back = most > 0x1p500 ? 0x1p600 : most < 0x1p-400 ? 0x1p-600 : 1.0;
  f64 length = __builtin_sqrt((x * scale) * (x * scale) + (y * scale) * (y * scale)) * back;
  return isinf(x) | isinf(y) ? __builtin_inf() : length;
}

// ---- functions with a rare slow path ----
//
// A function of all floats may need a branch that hardly any number takes, as the sine of 1e30, and no loop is vectorised
// with one. So g++ is given versions of it for whole vectors, by the names that it calls them by (the vector ABI of
// x86-64): all lanes take the path for numbers that are near, and where any is far, those lanes the other one again.
// Elsewhere every number takes the path that is right for all.
#if defined(__x86_64__) && defined(__AVX2__) && defined(__FP_FAST_FMA) && !defined(__clang__)
#define FAR_PATH static __attribute__((noinline))
template <class T, int lanes>
struct Vector {
  typedef T type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class F, class T, int lanes>
INLINE typename Vector<T, lanes>::type in_lanes(typename Vector<T, lanes>::type a, typename Vector<T, lanes>::type b) {
  alignas(64) T x[lanes], y[lanes], z[lanes];
  __builtin_memcpy(x, &a, sizeof a);
  __builtin_memcpy(y, &b, sizeof b);
  int far = 0;
#pragma omp simd reduction(| : far)
  for (int lane = 0; lane < lanes; lane++) {
    z[lane] = F::near(x[lane], y[lane]);
    far |= F::is_far(x[lane], y[lane]);
  }
  if (__builtin_expect(far, 0))
    for (int lane = 0; lane < lanes; lane++)
      if (F::is_far(x[lane], y[lane])) z[lane] = F::far(x[lane], y[lane]);
  __builtin_memcpy(&a, z, sizeof a);
  return a;
}
#define ASSAY_VECTOR(isa, lanes, name, T, F) \
  static __attribute__((used)) Vector<T, lanes>::type name##_##isa(Vector<T, lanes>::type x) \
      asm("_ZGV" #isa "N" #lanes "v_assay_" #name "_" #T); \
  static Vector<T, lanes>::type name##_##isa(Vector<T, lanes>::type x) { return in_lanes<F, T, lanes>(x, x); }
#define ASSAY_SCALAR(name, T, F) \
  T name(T) asm("assay_" #name "_" #T) __attribute__((const, nothrow, simd("notinbranch"))); \
  static __attribute__((used)) T name##_one(T x) asm("assay_" #name "_" #T); \
  static T name##_one(T x) { return F::is_far(x, x) ? F::far(x, x) : F::near(x, x); }
#define ASSAY_VECTOR_OF_TWO(isa, lanes, name, T, F) \
  static __attribute__((used)) Vector<T, lanes>::type name##_##isa(Vector<T, lanes>::type x, Vector<T, lanes>::type y) \
      asm("_ZGV" #isa "N" #lanes "vv_assay_" #name "_" #T); \
  static Vector<T, lanes>::type name##_##isa(Vector<T, lanes>::type x, Vector<T, lanes>::type y) { \
    return in_lanes<F, T, lanes>(x, y); \
  }
#define ASSAY_SCALAR_OF_TWO(name, T, F) \
  T name(T, T) asm("assay_" #name "_" #T) __attribute__((const, nothrow, simd("notinbranch"))); \
  static __attribute__((used)) T name##_one(T x, T y) asm("assay_" #name "_" #T); \
  static T name##_one(T x, T y) { return F::is_far(x, y) ? F::far(x, y) : F::near(x, y); }
#ifdef __AVX512F__
#define ASSAY_WIDEST(VECTOR, lanes, name, T, F) WIDE_VECTORS VECTOR(e, lanes, name, T, F)
#else
#define ASSAY_WIDEST(VECTOR, lanes, name, T, F)
#endif
#define ASSAY_BOTH(VECTOR, SCALAR, name, F) \
  ASSAY_WIDEST(VECTOR, 16, name, f32, F) VECTOR(d, 8, name, f32, F) VECTOR(b, 4, name, f32, F) SCALAR(name, f32, F) \
  ASSAY_WIDEST(VECTOR, 8, name, f64, F) VECTOR(d, 4, name, f64, F) VECTOR(b, 2, name, f64, F) SCALAR(name, f64, F)
#define ASSAY_LANES(name, F) ASSAY_BOTH(ASSAY_VECTOR, ASSAY_SCALAR, name, F)
#define ASSAY_LANES_OF_TWO(name, F) ASSAY_BOTH(ASSAY_VECTOR_OF_TWO, ASSAY_SCALAR_OF_TWO, name, F)
#else
#define FAR_PATH INLINE
#define ASSAY_LANES(name, F) \
  INLINE f32 name(f32 x) { return F::far(x, x); } \
  INLINE f64 name(f64 x) { return F::far(x, x); }
#define ASSAY_LANES_OF_TWO(name, F) \
  INLINE f32 name(f32 x, f32 y) { return F::far(x, y); } \
  INLINE f64 name(f64 x, f64 y) { return F::far(x, y); }
#endif

// ---- division that rounds down ----

// r less the multiple of b that is nearest to r / b, where the quotient is below 2^50; up to 0.7 b of either sign, as the
// quotient may be off by a little. Exact: what is left is a multiple of the last place of b, or r itself.
INLINE f64 modulo_step(f64 r, f64 b, f64 inverse) { return mad(-__builtin_rint(r * inverse), b, r); }

// The remainder of a / b with the sign of a, where |a| / |b| < 2^50 and b is neither large nor small; float32 in float64.
INLINE f64 fmod_near(f64 a, f64 b) {
  f64 by = abs(b), r = modulo_step(abs(a), by, 1.0 / by);
  return copysign(r < 0.0 ? r + by : r, a);
}

// Of float32 quotients go up to 2^277: by b times powers of two first. Every product is exact: it has 24 + 50 bits and
// cancels.
#ifdef __FP_FAST_FMA
INLINE f32 fmod_far(f32 a, f32 b) {
  f64 r = abs(a), by = abs(b), inverse = 1.0 / by;
  r = modulo_step(r, by * 0x1p240, inverse * 0x1p-240);
  r = modulo_step(r, by * 0x1p192, inverse * 0x1p-192);
  r = modulo_step(r, by * 0x1p144, inverse * 0x1p-144);
  r = modulo_step(r, by * 0x1p96, inverse * 0x1p-96);
  r = modulo_step(r, by * 0x1p48, inverse * 0x1p-48);
  r = modulo_step(r, by, inverse);
  r = r < 0.0 ? r + by : r;
  f32 result = copysign((f32)r, a);
  result = isinf(b) ? a : result;
  return isfinite(a) & (b == b) & (b != 0.0f) ? result : __builtin_nanf("");
}
#else
INLINE f32 fmod_far(f32 a, f32 b) { return __builtin_fmodf(a, b); }
#endif
INLINE f64 fmod_far(f64 a, f64 b) { return __builtin_fmod(a, b); }

struct Modulo {
  INLINE f32 near(f32 a, f32 b) { return (f32)fmod_near((f64)a, (f64)b); }
  INLINE f64 near(f64 a, f64 b) { return fmod_near(a, b); }
  INLINE bool is_far(f32 a, f32 b) { return !((f64)abs(a) < (f64)abs(b) * 0x1p50) | isinf(b); }
  INLINE bool is_far(f64 a, f64 b) {
    return !((abs(a) < abs(b) * 0x1p50) & (abs(b) > 0x1p-1000) & (abs(b) < 0x1p900));
  }
  FAR_PATH f32 far(f32 a, f32 b) { return fmod_far(a, b); }
  FAR_PATH f64 far(f64 a, f64 b) { return fmod_far(a, b); }
};
ASSAY_LANES_OF_TWO(fmod, Modulo)

template <class T>
INLINE T remainder(T a, T b) {
  T r = fmod(a, b);
  return (r != (T)0) & ((b < (T)0) != (r < (T)0)) ? r + b : r;
}

template <class T>
INLINE T floor_div(T a, T b) {
  T r = fmod(a, b);
  T quotient = (a - r) / b;
  quotient = (r != (T)0) & ((b < (T)0) != (r < (T)0)) ? quotient - (T)1 : quotient;
  T down = floor(quotient);
  down = quotient - down > (T)0.5 ? down + (T)1 : down;
  T result = quotient == (T)0 ? copysign((T)0, a / b) : down;
  return b == (T)0 ? a / b : result;
}

// Integers: the divisor is neither 0 nor -1 (`expr.py` holds that).
template <class T>
INLINE T floordiv_int(T a, T b) {
  T quotient = (T)(a / b);
  return (T)(quotient - ((a % b != 0) & ((a < 0) != (b < 0))));
}
template <class T>
INLINE T mod_int(T a, T b) {
  T r = (T)(a % b);
  return (T)(r + (b & (T)-(T)((r != 0) & ((r < 0) != (b < 0)))));
}

// ln(e^a + e^b), as eager's scan takes it.
INLINE f64 logaddexp(f64 a, f64 b) {
  f64 low = minimum(a, b), high = maximum(a, b);
  f64 sum = high + __builtin_log1p(__builtin_exp(low - high));
  return (low != high) | isfinite(low) ? sum : a;
}
INLINE f32 logaddexp(f32 a, f32 b) {
  f32 low = minimum(a, b), high = maximum(a, b);
  f32 sum = high + __builtin_log1pf(__builtin_expf(low - high));
  return (low != high) | isfinite(low) ? sum : a;
}

INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 greatest(i64 a, i64 b) { return a > b ? a : b; }

// Wraps as eager does; a negative exponent leaves 1/base rounded towards zero.
template <class T>
INLINE T pow_int(T base, T exponent) {
  if (exponent < 0) return base == 1 ? (T)1 : base == (T)-1 ? (exponent & 1 ? (T)-1 : (T)1) : (T)0;
  T result = 1;
  for (; exponent; exponent = (T)(exponent >> 1)) {
    result = exponent & 1 ? (T)(result * base) : result;
    base = (T)(base * base);
  }
  return result;
}

// Shifts by a negative amount, or by the width and more, leave no bits (or only sign bits), as eager does.
template <class T>
INLINE T shl(T a, T b) {
  const int width = 8 * sizeof(T);
  return (u64)(i64)b >= (u64)width ? (T)0 : (T)((u64)a << (u64)b);
}
template <class T>
INLINE T shr(T a, T b) {
  const u64 width = 8 * sizeof(T);
  T none = a < (T)0 ? (T)-1 : (T)0;
  return (u64)(i64)b >= width ? none : (T)(a >> b);
}

// ---- exponentials, float32 ----

// e^r - 1 for |r| <= ln(2)/2, and n, where x = n ln(2) + r.
INLINE f32 reduced_expm1(f32 x, f32& n) {
  n = __builtin_rintf(x * 0x1.715476p+0f);
  f32 high = mad(n, -0x1.62e4p-1f, x);
  f32 r = mad(n, -0x1.7f7d1cp-20f, high);
  f32 lost = mad(n, -0x1.7f7d1cp-20f, high - r);
  f32 p = 0x1.6dbc64p-10f;
  p = mad(p, r, 0x1.124148p-7f);
  p = mad(p, r, 0x1.555454p-5f);
  p = mad(p, r, 0x1.555486p-3f);
  p = mad(p, r, 0x1.000000p-1f);
  return r + mad(r * r, p, lost);
}

INLINE f32 power_of_two(i32 n) { return bits<f32>((n + 127) << 23); }

// e^x where the result is a normal number.
INLINE f32 exp_normal(f32 x) {
  f32 n, e = reduced_expm1(x, n);
  return (1.0f + e) * power_of_two((i32)n);
}

// e^r - 1 and 2^k, where x = n ln(2) + r, |r| <= ln(2)/2, and `shift` is 1.5 * 2^23 + 127 + k - n: added to n, it has the
// exponent of 2^k in its low bits.
INLINE f32 shifted_expm1(f32 x, f32 shift, f32& power) {
  f32 sum = mad(x, 0x1.715476p+0f, shift), n = sum - shift;
  power = bits<f32>(bits<u32>(sum) << 23);
  f32 r = mad(n, -0x1.7f7d1cp-20f, mad(n, -0x1.62e4p-1f, x));
  f32 p = 0x1.6dbc64p-10f;
  p = mad(p, r, 0x1.124148p-7f);
  p = mad(p, r, 0x1.555454p-5f);
  p = mad(p, r, 0x1.555486p-3f);
  p = mad(p, r, 0x1.000000p-1f);
  return mad(r * r, p, r);
}

// e^x in two steps, as n is -150..128: times 2^32 or 2^-32 first. What is beyond is chosen last, and NaN goes through.
INLINE f32 exp(f32 x) {
  bool left = x < 0.0f;
  f32 power, e = shifted_expm1(x, left ? 0x1.8p23f + 159.0f : 0x1.8p23f + 95.0f, power);
  f32 result = mad(e, power, power) * (left ? 0x1p-32f : 0x1p32f);
  result = x > 89.0f ? __builtin_inff() : result;
  return x < -104.0f ? 0.0f : result;
}

// e^x for x <= 0 or NaN.
INLINE f32 exp_below(f32 x) {
  f32 power, e = shifted_expm1(x, 0x1.8p23f + 159.0f, power);
  f32 result = mad(e, power, power) * 0x1p-32f;
  return x < -104.0f ? 0.0f : result;
}

INLINE f32 expm1(f32 x) {
  f32 p = 0x1.a317bep-13f;
  p = mad(p, x, 0x1.6e8440p-10f);
  p = mad(p, x, 0x1.110f34p-7f);
  p = mad(p, x, 0x1.5553a6p-5f);
  p = mad(p, x, 0x1.555556p-3f);
  p = mad(p, x, 0.5f);
  f32 small = mad(x * x, p, x);
  return copysign(abs(x) < 0.5f ? small : exp(x) - 1.0f, x);
}

// 1 / (1 + e^-x), both sides of the fraction times 2^-32: e^104 is within range then. One Newton step over the parts of
// the sum gives back what rounding took.
INLINE f32 sigmoid(f32 x) {
  f32 c = x < -104.0f ? -104.0f : x;
  c = c > 30.0f ? 30.0f : c;
  const f32 one = 0x1p-32f;
  f32 n, e = reduced_expm1(-c, n);
  f32 power = power_of_two((i32)n - 32), part = e * power;
  f32 value = one / (one + (power + part));
  f32 lost = mad(-value, part, mad(-value, power, mad(-value, one, one)));
  return mad(value * 0x1p32f, lost, value);
}

INLINE f32 tanh(f32 x) {
  f32 a = abs(x), s = x * x;
  f32 p = -0x1.76abf6p-8f;
  p = mad(p, s, 0x1.5256cep-6f);
  p = mad(p, s, -0x1.b84458p-5f);
  p = mad(p, s, 0x1.110768p-3f);
  p = mad(p, s, -0x1.555534p-2f);
  f32 small = mad(x * s, p, x);
  f32 c = a > 10.0f ? 10.0f : a;
  f32 large = 1.0f - 2.0f / (exp_normal(2.0f * c) + 1.0f);
  return copysign(a < 0.625f ? small : large, x);
}

INLINE f32 erf(f32 x) {
  f32 a = abs(x), s = x * x;
  f32 p = 0x1.4ae4c6p-14f;
  p = mad(p, s, -0x1.a485e8p-11f);
  p = mad(p, s, 0x1.5419f4p-8f);
  p = mad(p, s, -0x1.b7fbb4p-6f);
  p = mad(p, s, 0x1.ce2d20p-4f);
  p = mad(p, s, -0x1.81273ep-2f);
  p = mad(p, s, 0x1.06eba8p-3f);
  f32 small = mad(x, p, x);
  f32 t = a > 3.95f ? 3.95f : a;
  f32 q = 0x1.5d723cp-16f;  // erfc(t) = e^-q(t) on [0.9, 3.95]
  q = mad(q, t, -0x1.c45954p-12f);
  q = mad(q, t, 0x1.106264p-8f);
  q = mad(q, t, -0x1.9aebbap-6f);
  q = mad(q, t, 0x1.bb454cp-4f);
  q = mad(q, t, 0x1.444d1ep-1f);
  q = mad(q, t, 0x1.212626p+0f);
  q = mad(q, t, -0x1.62d950p-13f);
  f32 large = copysign(1.0f - exp_normal(-q), x);
  return a < 1.0f ? small : large;
}

// ---- logarithms, float32 ----

// t, e and f, where x = 2^e (1 + f) and ln(1 + f) = f + t, for sqrt(1/2) <= 1 + f < sqrt(2) and positive finite x.
INLINE f32 log_parts(f32 x, f32& e, f32& f, f32 more) {
  f32 scaled = x < 0x1p-126f ? x * 0x1p23f : x;
  i32 u = bits<i32>(scaled) - 0x3f3504f3;
  e = (f32)((u >> 23) - (x < 0x1p-126f ? 23 : 0));
  f = bits<f32>((u & 0x7fffff) + 0x3f3504f3) - 1.0f;
  f32 p = -0x1.41ed50p-4f;
  p = mad(p, f, 0x1.07d0ccp-3f);
  p = mad(p, f, -0x1.0ce08ep-3f);
  p = mad(p, f, 0x1.226e50p-3f);
  p = mad(p, f, -0x1.54788ap-3f);
  p = mad(p, f, 0x1.99a596p-3f);
  p = mad(p, f, -0x1.000220p-2f);
  p = mad(p, f, 0x1.55554ap-2f);
  return mad(f * f, mad(f, p, -0.5f), e * more);
}

// The limits of a logarithm, where `result` holds for positive finite x.
INLINE f32 log_limits(f32 x, f32 result) {
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? -__builtin_inff() : result;
  return x >= 0.0f ? result : __builtin_nanf("");
}

INLINE f32 log(f32 x) {
  f32 e, f, t = log_parts(x, e, f, -0x1.bd0106p-13f);
  return log_limits(x, mad(e, 0x1.63p-1f, f + t));
}

// f times a constant in two parts and t times it; then e, or e times another in two parts of which the first is exact.
INLINE f32 log2(f32 x) {
  f32 e, f, t = log_parts(x, e, f, 0.0f), high = f * 0x1.715476p+0f;
  f32 low = mad(t, 0x1.715476p+0f, mad(f, 0x1.4ae0c0p-26f, mad(f, 0x1.715476p+0f, -high)));
  return log_limits(x, e + (high + low));
}
INLINE f32 log10(f32 x) {
  f32 e, f, t = log_parts(x, e, f, 0.0f), high = f * 0x1.bcb7b2p-2f;
  f32 low = mad(t, 0x1.bcb7b2p-2f, mad(f, -0x1.5b235ep-27f, mad(f, 0x1.bcb7b2p-2f, -high)));
  return log_limits(x, mad(e, 0x1.344000p-2f, high + mad(e, 0x1.3509f8p-18f, low)));
}

INLINE f32 log1p(f32 x) {
  f32 u = 1.0f + x;
  f32 lost = x - (u - 1.0f);
  f32 result = log(u) + lost / u;
  result = u == 0.0f ? -__builtin_inff() : result;
  return (x == __builtin_inff()) | (x == 0.0f) ? x : result;
}

// ln(x) to 2^-50 for a positive finite x, and 2^t to 2^-34 for |t| < 1000: what pow needs inside.
INLINE f64 log_inside(f64 x) {
  i64 u = bits<i64>(x) - 0x3fe6a09e667f3bcdLL;
  f64 e = bits<f64>((u >> 52) + 0x4338000000000000LL) - 0x1.8p52;
  f64 f = bits<f64>((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL);
  f64 s = (f - 1.0) / (f + 1.0), z = s * s;
  f64 p = 0.16835013866798945;
  p = mad(p, z, 0.18122427053411103);
  p = mad(p, z, 0.2222340757011717);
  p = mad(p, z, 0.28571416653558096);
  p = mad(p, z, 0.4000000005499821);
  p = mad(p, z, 0.6666666666658222);
  return mad(e, 0.6931471805599453, mad(s * z, p, 2.0 * s));
}

INLINE f64 exp2_inside(f64 t) {
  f64 shifted = t + 0x1.8p52;
  f64 f = t - (shifted - 0x1.8p52);
  f64 p = 1.531774222463754e-05;
  p = mad(p, f, 0.00015471064890595164);
  p = mad(p, f, 0.0013333417149751798);
  p = mad(p, f, 0.00961802139594356);
  p = mad(p, f, 0.05550410982842022);
  p = mad(p, f, 0.2402265124546357);
  p = mad(p, f, 0.6931471805329658);
  p = mad(p, f, 1.0);
  return p * bits<f64>((bits<i64>(shifted) + 1023) << 52);
}

INLINE f32 exp2(f32 x) {
  x = x < -152.0f ? -152.0f : x;
  x = x > 129.0f ? 129.0f : x;
  f32 n = __builtin_rintf(x), r = x - n;
  f32 p = 0x1.00a5820000000p-16f;
  p = mad(p, r, 0x1.4440000000000p-13f);
  p = mad(p, r, 0x1.5d879e0000000p-10f);
  p = mad(p, r, 0x1.3b2a1c0000000p-7f);
  p = mad(p, r, 0x1.c6b08e0000000p-5f);
  p = mad(p, r, 0x1.ebfbe00000000p-3f);
  p = mad(p, r, 0x1.62e4300000000p-1f);
  i32 k = (i32)n, half = k >> 1;
  return mad(r, p, 1.0f) * power_of_two(half) * power_of_two(k - half);
}

INLINE f32 pow(f32 x, f32 y) {
  f32 a = abs(x);
  f64 l = log_inside((f64)a) * 1.4426950408889634;
  l = a == 0.0f ? -__builtin_inf() : l;
  l = a == __builtin_inff() ? __builtin_inf() : l;
  f64 t = (f64)y * l;
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  f32 r = (f32)exp2_inside(t);
  r = (a != a) | (y != y) ? x + y : r;
  r = (a == 1.0f) & (y == y) ? 1.0f : r;
  bool whole = floor(y) == y;
  f32 half = 0.5f * y;
  bool odd = whole & (floor(half) != half);
  r = signbit(x) & odd ? -r : r;
  r = (x < 0.0f) & !whole & (a != __builtin_inff()) ? __builtin_nanf("") : r;
  return (x == 1.0f) | (y == 0.0f) ? 1.0f : r;
}

// ---- sine and cosine, float32 ----

// For every exponent of x, high + low = 2/pi less the multiples of 4 in x * 2/pi: x * high is exact, and x * (high +
// low) is the quadrant with 50 bits behind its point, for any finite x.
alignas(64) static const double two_over_pi_high[256] = {
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1,
  0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.45f3068000000p-1, 0x1.17cc1b0000000p-3, 0x1.17cc1b0000000p-3,
  0x1.7cc1b70000000p-7, 0x1.7cc1b70000000p-7, 0x1.7cc1b70000000p-7, 0x1.7cc1b70000000p-7, 0x1.f306dc8000000p-9,
  0x1.f306dc8000000p-9, 0x1.e60db90000000p-10, 0x1.cc1b720000000p-11, 0x1.9836e48000000p-12, 0x1.306dc98000000p-13,
  0x1.836e4e0000000p-16, 0x1.836e4e0000000p-16, 0x1.836e4e0000000p-16, 0x1.06dc9c8000000p-17, 0x1.b727220000000p-23,
  0x1.b727220000000p-23, 0x1.b727220000000p-23, 0x1.b727220000000p-23, 0x1.b727220000000p-23, 0x1.b727220000000p-23,
  0x1.6e4e440000000p-24, 0x1.b939100000000p-26, 0x1.b939100000000p-26, 0x1.7272208000000p-27, 0x1.c9c8828000000p-29,
  0x1.c9c8828000000p-29, 0x1.9391050000000p-30, 0x1.27220a8000000p-31, 0x1.3910548000000p-34, 0x1.3910548000000p-34,
  0x1.3910548000000p-34, 0x1.c882a50000000p-37, 0x1.c882a50000000p-37, 0x1.c882a50000000p-37, 0x1.91054a0000000p-38,
  0x1.220a948000000p-39, 0x1.1054a78000000p-42, 0x1.1054a78000000p-42, 0x1.1054a78000000p-42, 0x1.054a7f0000000p-46,
  0x1.054a7f0000000p-46, 0x1.054a7f0000000p-46, 0x1.054a7f0000000p-46, 0x1.529fc20000000p-52, 0x1.529fc20000000p-52,
  0x1.529fc20000000p-52, 0x1.529fc20000000p-52, 0x1.529fc20000000p-52, 0x1.529fc20000000p-52, 0x1.4a7f098000000p-54,
  0x1.4a7f098000000p-54, 0x1.29fc270000000p-56, 0x1.29fc270000000p-56, 0x1.4fe13a8000000p-59, 0x1.4fe13a8000000p-59,
  0x1.4fe13a8000000p-59, 0x1.3f84ea8000000p-61, 0x1.3f84ea8000000p-61, 0x1.fc27578000000p-64, 0x1.fc27578000000p-64,
  0x1.fc27578000000p-64, 0x1.f84eaf8000000p-65, 0x1.f09d5f0000000p-66, 0x1.e13abe8000000p-67, 0x1.c2757d0000000p-68,
  0x1.84eafa0000000p-69, 0x1.09d5f40000000p-70, 0x1.3abe8f8000000p-75, 0x1.3abe8f8000000p-75, 0x1.3abe8f8000000p-75,
  0x1.3abe8f8000000p-75, 0x1.3abe8f8000000p-75, 0x1.d5f47d0000000p-78, 0x1.d5f47d0000000p-78, 0x1.d5f47d0000000p-78,
  0x1.abe8fa8000000p-79, 0x1.57d1f50000000p-80, 0x1.5f47d48000000p-82, 0x1.5f47d48000000p-82, 0x1.7d1f530000000p-84,
  0x1.7d1f530000000p-84, 0x1.f47d4d0000000p-86, 0x1.f47d4d0000000p-86, 0x1.e8fa9a0000000p-87, 0x1.d1f5348000000p-88,
  0x1.a3ea698000000p-89, 0x1.47d4d30000000p-90, 0x1.1f534d8000000p-92, 0x1.1f534d8000000p-92, 0x1.f534dd8000000p-96,
  0x1.f534dd8000000p-96, 0x1.f534dd8000000p-96, 0x1.f534dd8000000p-96, 0x1.ea69bb8000000p-97, 0x1.d4d3770000000p-98,
  0x1.a9a6ee0000000p-99, 0x1.534ddc0000000p-100, 0x1.4d37700000000p-102, 0x1.4d37700000000p-102,
  0x1.34ddc08000000p-104, 0x1.34ddc08000000p-104};
alignas(64) static const double two_over_pi_low[256] = {
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27,
  0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.727220a94fe14p-27, 0x1.c9c882a53f84fp-29, 0x1.c9c882a53f84fp-29,
  0x1.391054a7f09d6p-34, 0x1.391054a7f09d6p-34, 0x1.391054a7f09d6p-34, 0x1.391054a7f09d6p-34, 0x1.c882a53f84eb0p-37,
  0x1.c882a53f84eb0p-37, 0x1.c882a53f84eb0p-37, 0x1.c882a53f84eb0p-37, 0x1.91054a7f09d5fp-38, 0x1.220a94fe13abfp-39,
  0x1.1054a7f09d5f4p-42, 0x1.1054a7f09d5f4p-42, 0x1.1054a7f09d5f4p-42, 0x1.054a7f09d5f48p-46, 0x1.529fc2757d1f5p-52,
  0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52,
  0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.4a7f09d5f47d5p-54, 0x1.29fc2757d1f53p-56,
  0x1.29fc2757d1f53p-56, 0x1.29fc2757d1f53p-56, 0x1.4fe13abe8fa9ap-59, 0x1.3f84eafa3ea6ap-61, 0x1.3f84eafa3ea6ap-61,
  0x1.3f84eafa3ea6ap-61, 0x1.fc2757d1f534ep-64, 0x1.fc2757d1f534ep-64, 0x1.fc2757d1f534ep-64, 0x1.fc2757d1f534ep-64,
  0x1.f84eafa3ea69cp-65, 0x1.c2757d1f534dep-68, 0x1.c2757d1f534dep-68, 0x1.c2757d1f534dep-68, 0x1.3abe8fa9a6ee0p-75,
  0x1.3abe8fa9a6ee0p-75, 0x1.3abe8fa9a6ee0p-75, 0x1.3abe8fa9a6ee0p-75, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78,
  0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.57d1f534ddc0ep-80,
  0x1.57d1f534ddc0ep-80, 0x1.5f47d4d377037p-82, 0x1.5f47d4d377037p-82, 0x1.f47d4d377036ep-86, 0x1.f47d4d377036ep-86,
  0x1.f47d4d377036ep-86, 0x1.e8fa9a6ee06dbp-87, 0x1.e8fa9a6ee06dbp-87, 0x1.47d4d377036d9p-90, 0x1.47d4d377036d9p-90,
  0x1.47d4d377036d9p-90, 0x1.1f534ddc0db63p-92, 0x1.1f534ddc0db63p-92, 0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96,
  0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96, 0x1.4d377036d8a56p-102, 0x1.4d377036d8a56p-102,
  0x1.4d377036d8a56p-102, 0x1.4d377036d8a56p-102, 0x1.4d377036d8a56p-102, 0x1.34ddc0db6295ap-104,
  0x1.34ddc0db6295ap-104, 0x1.34ddc0db6295ap-104, 0x1.a6ee06db14acdp-107, 0x1.a6ee06db14acdp-107,
  0x1.4ddc0db629599p-108, 0x1.4ddc0db629599p-108, 0x1.377036d8a5665p-110, 0x1.377036d8a5665p-110,
  0x1.bb81b6c52b328p-113, 0x1.bb81b6c52b328p-113, 0x1.bb81b6c52b328p-113, 0x1.77036d8a5664fp-114,
  0x1.dc0db6295993cp-116, 0x1.dc0db6295993cp-116, 0x1.7036d8a5664f1p-118, 0x1.7036d8a5664f1p-118,
  0x1.036d8a5664f11p-122, 0x1.036d8a5664f11p-122, 0x1.036d8a5664f11p-122, 0x1.036d8a5664f11p-122,
  0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129,
  0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.6d8a5664f10e4p-130, 0x1.6d8a5664f10e4p-130};

// x = (quadrant + fraction) * pi/2, -1/2 <= fraction <= 1/2; returns fraction * pi/2.
INLINE f64 reduce_quadrant(f32 x, i32& quadrant) {
  i64 e = (bits<i32>(x) >> 23) & 255;  // signed, and as wide as what it places: gcc gathers with no other index
  f64 v = (f64)x;
  f64 whole = v * two_over_pi_high[e];
  f64 n = __builtin_rint(whole);
  f64 fraction = whole - n;
  f64 low = two_over_pi_low[e];
  f64 step = __builtin_rint(mad(v, low, fraction));
  fraction = mad(v, low, fraction - step);
  quadrant = (i32)(n + step);
  return fraction * 1.5707963267948966;
}

INLINE f32 sin_of_quadrant(f64 r, i32 quadrant, f32 x) {
  f32 a = (f32)r, s = a * a;
  f32 p = mad(s, 0x1.6cbeeep-19f, -0x1.a00f34p-13f);
  p = mad(p, s, 0x1.111108p-7f);
  p = mad(p, s, -0x1.555556p-3f);
  f32 sine = mad(a * s, p, a);
  f32 q = mad(s, 0x1.99e360p-16f, -0x1.6c0c22p-10f);
  q = mad(q, s, 0x1.55554ap-5f);
  f32 cosine = mad(s * s, q, mad(s, -0.5f, 1.0f));
  f32 value = quadrant & 1 ? cosine : sine;
  value = quadrant & 2 ? -value : value;
  return abs(x) < __builtin_inff() ? value : __builtin_nanf("");
}

INLINE f32 sin_far(f32 x) {
  i32 quadrant;
  f64 r = reduce_quadrant(x, quadrant);
  f32 value = sin_of_quadrant(r, quadrant, x);
  return x == 0.0f ? x : value;
}

INLINE f32 cos_far(f32 x) {
  i32 quadrant;
  f64 r = reduce_quadrant(x, quadrant);
  return sin_of_quadrant(r, quadrant + 1, x);
}

// ---- float32 by way of float64, to about 2^-32 before the one rounding ----

INLINE f64 exp_inside(f64 x) { return exp2_inside(x * 1.4426950408889634); }

INLINE f32 cosh(f32 x) {
  f64 e = exp_inside(abs(x) > 100.0f ? 100.0 : (f64)abs(x));
  f32 result = (f32)(0.5 * (e + 1.0 / e));
  return x == x ? result : x;
}
INLINE f32 sinh(f32 x) {
  f64 v = x, z = v * v;
  f64 e = exp_inside(v > 100.0 ? 100.0 : v < -100.0 ? -100.0 : v);
  f64 p = 2.545670657152382e-08;
  p = mad(p, z, 2.755377026364149e-06);
  p = mad(p, z, 0.0001984128253011599);
  p = mad(p, z, 0.008333333317464362);
  p = mad(p, z, 0.16666666666698407);
  f64 small = mad(v * z, p, v);
  f32 result = (f32)(abs(x) < 1.0f ? small : 0.5 * (e - 1.0 / e));
  return (x == 0.0f) | (x != x) ? x : result;
}

INLINE f32 asinh(f32 x) {
  f64 a = abs(x), z = a * a;
  f64 large = log_inside(a + __builtin_sqrt(z + 1.0));
  f32 result = (f32)(a < 0x1p-12 ? a - a * z * (1.0 / 6.0) : large);
  result = abs(x) < __builtin_inff() ? result : abs(x);
  return copysign(result, x);
}
INLINE f32 acosh(f32 x) {
  f64 v = x;
  f32 result = (f32)log_inside(v + __builtin_sqrt((v - 1.0) * (v + 1.0)));
  result = x == __builtin_inff() ? x : result;
  return x >= 1.0f ? result : __builtin_nanf("");
}
INLINE f32 atanh(f32 x) {
  f64 a = abs(x);
  f64 large = 0.5 * log_inside((1.0 + a) / (1.0 - a));
  f32 result = (f32)(a < 0x1p-12 ? a + a * a * a * (1.0 / 3.0) : large);
  result = a == 1.0 ? __builtin_inff() : result;
  return a <= 1.0 ? copysign(result, x) : __builtin_nanf("");
}

INLINE f32 erfc(f32 x) {
  f64 t = abs(x) > 10.2f ? 10.2 : (f64)abs(x), u = (t - 3.0) / (t + 3.0);
  f64 p = 1.4051436050339249e-05;
  p = mad(p, u, 6.0810216753488844e-05);
  p = mad(p, u, -3.0217377656822273e-05);
  p = mad(p, u, -0.00037472057030844797);
  p = mad(p, u, 0.0006472254483278074);
  p = mad(p, u, 0.0016211487799065243);
  p = mad(p, u, -0.009750525375359215);
  p = mad(p, u, 0.021957395558674785);
  p = mad(p, u, -0.023803961829791276);
  p = mad(p, u, -0.010235367226846703);
  p = mad(p, u, 0.09902075628226067);
  p = mad(p, u, -0.23092733345847244);
  p = mad(p, u, 0.7160046047067783);
  f64 tail = exp_inside(-t * t) * p / (1.0 + t);
  f32 result = (f32)(x < 0.0f ? 2.0 - tail : tail);
  return x == x ? result : x;
}

// The end of 2 ln(2), whose beginning, 0x1.62e4p+0, has few enough bits for its products with integers to be exact.
const f32 TWO_LN2_END = 0x1.7f7d1cp-19f;

// high, n and a power of 2 with r = high + n TWO_LN2_END and e^(-t^2/2) = e^(-r/2) power 2^-scale, for 0 <= t < 14.6. The
// square is not rounded: what is exact is taken from it in one step.
INLINE f32 reduced_square(f32 t, f32 scale, f32& power, f32& n) {
  f32 shift = 0x1.8p23f + 127.0f + scale, sum = mad(t * t, -0x1.715476p-1f, shift);
  n = sum - shift;
  power = bits<f32>(bits<u32>(sum) << 23);
  return mad(t, t, n * 0x1.62e4p+0f);
}

// scale (e^(-r/2) - 1 + r/2) / r^2 for |r| <= ln(2); `scale` is a power of 2.
INLINE f32 bend_of_half(f32 r, f32 scale) {
  f32 q = scale * 0x1.6dbc64p-16f;
  q = mad(q, r, scale * -0x1.124148p-12f);
  q = mad(q, r, scale * 0x1.555454p-9f);
  q = mad(q, r, scale * -0x1.555486p-6f);
  return mad(q, r, scale * 0x1p-3f);
}

// |x|, at most `most`: positive numbers are in the order of their bits, and a minimum of integers is one instruction.
INLINE f32 abs_at_most(f32 x, f32 most) {
  i32 a = bits<i32>(abs(x)), b = bits<i32>(most);
  return bits<f32>(a < b ? a : b);
}

// x times the probability that a normal number is below x: x or 0 less s (1 + g) e^(-t^2/2) / 2, where t = |x| and
// s = t/(t + 1.5). That s is rounded does no harm in the tail, where s (1 + g) is nearly constant; what rounding took from
// t + 1.5, `lost`, changes the rest about as much as adding -lost y to r. e is 2 - 2 e^(-r/2), its terms from the least on.
// The lesser of x and -0 is the larger of their bits; less x it is NaN at -inf, and gives zeros the sign of x.
INLINE f32 gelu(f32 x) {
  f32 t = abs_at_most(x, 14.42f), d = t + 1.5f, lost = t - (d - 1.5f);
  f32 s = t / d, y = mad(s, 0x1.4cccccp+0f, -0x1.1840acp+0f);
  f32 power, n, high = reduced_square(t, 24.0f, power, n), low = n * TWO_LN2_END, r = high + low;
  f32 e = high + mad(r * r, bend_of_half(r, -2.0f), mad(-lost, y, low));
  f32 p = 0x1.5cf2c6p-5f;
  p = mad(p, y, 0x1.fe5b18p-3f);
  p = mad(p, y, 0x1.398014p-1f);
  p = mad(p, y, 0x1.8c7ee4p-1f);
  p = mad(p, y, 0x1.accbdep-2f);
  p = mad(p, y, -0x1.30c336p-3f);
  p = mad(p, y, -0x1.226958p-2f);
  p = mad(p, y, 0x1.b6432cp-4f);
  p = mad(p, y, 0x1.4f9bb4p-2f);
  p = mad(p, y, -0x1.b0ff82p-3f);
  p = mad(p, y, -0x1.58894ep-1f);
  f32 g = mad(s, p, 0.5f), part = s * power;
  u32 u = bits<u32>(x), below = u > 0x80000000u ? u : 0x80000000u;
  return mad(mad(-part, mad(g, e - 2.0f, e), part + part), -0x1p-26f, -(bits<f32>(below) - x));
}

// The derivative of gelu, cdf(x) + x e^(-x^2/2) / sqrt(2 pi): e^(-t^2/2) (t + 4) p(t / (t + 4)), or 1 less that.
INLINE f32 gelu_slope(f32 x) {
  f32 a = abs(x), t = abs_at_most(x, 14.56f), v = a / (a + 4.0f);  // NaN at infinities
  f32 power, n, high = reduced_square(t, 27.0f, power, n), r = mad(n, TWO_LN2_END, high);
  f32 e = r * mad(bend_of_half(r, 1.0f), r, -0.5f);
  f32 p = -0x1.54a72ap-35f;
  p = mad(p, v, -0x1.cf2d42p-35f);
  p = mad(p, v, 0x1.420326p-31f);
  p = mad(p, v, -0x1.92d256p-31f);
  p = mad(p, v, -0x1.7a5596p-30f);
  p = mad(p, v, 0x1.7c815ap-28f);
  p = mad(p, v, -0x1.20a55ep-27f);
  p = mad(p, v, 0x1.fffeb2p-28f);
  p = mad(p, v, -0x1.d8844cp-28f);
  p = mad(p, v, 0x1.000000p-30f);
  p = p * (t + 4.0f);
  i32 sign = bits<i32>(x);
  f32 sided = bits<f32>(bits<i32>(power) ^ (~sign & (i32)0x80000000));
  return mad(mad(p, e, p), sided, sign < 0 ? 0.0f : 1.0f);
}

INLINE f64 angle_inside(f64 y, f64 x) {
  bool low = y < 0.41421356 * x, high = y * 0.41421356 > x;
  f64 t = (low ? y : high ? -x : y - x) / (low ? x : high ? y : y + x), z = t * t;
  f64 p = -0.040429226651597004;
  p = mad(p, z, 0.07135182084685653);
  p = mad(p, z, -0.09028958301807892);
  p = mad(p, z, 0.11107493108352956);
  p = mad(p, z, -0.14285612438479525);
  p = mad(p, z, 0.19999998916343023);
  p = mad(p, z, -0.3333333333143878);
  return (low ? 0.0 : high ? 1.5707963267948966 : 0.7853981633974483) + mad(t * z, p, t);
}
INLINE f32 atan(f32 x) {
  f32 a = abs(x);
  f32 result = copysign((f32)angle_inside(a > 0x1p40f ? 0x1p40 : (f64)a, 1.0), x);
  return x == x ? result : x;
}
INLINE f32 atan2(f32 y, f32 x) {
  f64 b = abs(y), a = abs(x);
  bool endless = isinf(y) | isinf(x);
  b = endless ? (isinf(y) ? 1.0 : 0.0) : b;
  a = endless ? (isinf(x) ? 1.0 : 0.0) : a;
  f64 result = angle_inside(b, b + a == 0.0 ? 1.0 : a);
  result = signbit(x) ? 3.141592653589793 - result : result;
  return (y != y) | (x != x) ? x + y : copysign((f32)result, y);
}

INLINE f64 asin_inside(f64 x) {
  f64 z = x * x;
  f64 p = 0.02930523970533579;
  p = mad(p, z, 0.0054431851027481075);
  p = mad(p, z, 0.019306260869368045);
  p = mad(p, z, 0.022132443623426794);
  p = mad(p, z, 0.030397634130580702);
  p = mad(p, z, 0.044642358484883196);
  p = mad(p, z, 0.07500000598829049);
  p = mad(p, z, 0.16666666665495086);
  return mad(x * z, p, x);
}
INLINE f32 asin(f32 x) {
  f64 v = x, a = abs(v);
  f64 r = asin_inside(a <= 0.5 ? v : __builtin_sqrt(0.5 - 0.5 * a));
  return (f32)(a <= 0.5 ? r : copysign(1.5707963267948966 - 2.0 * r, v));
}
INLINE f32 acos(f32 x) {
  f64 v = x, a = abs(v);
  f64 r = asin_inside(a <= 0.5 ? v : __builtin_sqrt(0.5 - 0.5 * a));
  f64 outer = v < 0.0 ? 3.141592653589793 - 2.0 * r : 2.0 * r;
  return (f32)(a <= 0.5 ? 1.5707963267948966 - r : outer);
}

INLINE f32 tan_far(f32 x) {
  i32 quadrant;
  f64 r = reduce_quadrant(x, quadrant), z = r * r;
  f64 p = 2.7249851596168045e-06;
  p = mad(p, z, -0.00019840086163020333);
  p = mad(p, z, 0.008333331873650577);
  p = mad(p, z, -0.16666666663852564);
  f64 sine = mad(r * z, p, r);
  p = -2.730089685421905e-07;
  p = mad(p, z, 2.480059989498288e-05);
  p = mad(p, z, -0.0013888887671118645);
  p = mad(p, z, 0.04166666666431882);
  f64 cosine = mad(z * z, p, mad(z, -0.5, 1.0));
  f32 value = (f32)(quadrant & 1 ? -cosine / sine : sine / cosine);
  value = abs(x) < __builtin_inff() ? value : __builtin_nanf("");
  return x == 0.0f ? x : value;
}

// ---- float64 ----
//
// Accuracy where the machine multiplies and adds in one step; elsewhere an ulp less. docs/math.md has what is measured.

// e^r - 1 for |r| <= ln(2)/2, and n, where x = n ln(2) + r.
INLINE f64 reduced_expm1(f64 x, f64& n) {
  n = __builtin_rint(x * 1.4426950408889634);
  f64 high = x - n * 0.693147180559663;  // exact: the constant has 41 bits
  f64 r = mad(n, -2.8235290563031577e-13, high);
  f64 lost = mad(n, -2.8235290563031577e-13, high - r);
  f64 p = 2.091488256348507e-09;
  p = mad(p, r, 2.5105490906986696e-08);
  p = mad(p, r, 2.7557273171941026e-07);
  p = mad(p, r, 2.7557254740405416e-06);
  p = mad(p, r, 2.4801587325920163e-05);
  p = mad(p, r, 0.00019841269875342141);
  p = mad(p, r, 0.0013888888888883642);
  p = mad(p, r, 0.008333333333325985);
  p = mad(p, r, 0.04166666666666667);
  p = mad(p, r, 0.1666666666666667);
  p = mad(p, r, 0.5);
  return r + mad(r * r, p, lost);
}

INLINE f64 power_of_two_64(f64 n) { return bits<f64>((bits<i64>(n + 0x1.8p52) + 1023) << 52); }

INLINE f64 scaled_by_power(f64 x, f64 n) {
  f64 half = __builtin_floor(n * 0.5);  // in two steps: the result may be subnormal
  return x * power_of_two_64(half) * power_of_two_64(n - half);
}

INLINE f64 within(f64 x, f64 low, f64 high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

INLINE f64 exp(f64 x) {
  f64 n, e = reduced_expm1(within(x, -750.0, 710.0), n);
  return scaled_by_power(1.0 + e, n);
}

INLINE f64 exp2(f64 x) {
  x = within(x, -1080.0, 1025.0);
  f64 n = __builtin_rint(x), ignored;
  f64 t = x - n, high = t * 0.6931471805599453;
  f64 low = mad(t, 0.6931471805599453, -high) + t * 2.3190468138462996e-17;
  return scaled_by_power(1.0 + (reduced_expm1(high, ignored) + low), n + ignored);
}

INLINE f64 expm1(f64 x) {
  f64 n, e = reduced_expm1(within(x, -40.0, 710.0), n);
  f64 k = n < 60.0 ? n : 60.0;  // beyond, 1 is less than half an ulp
  f64 result = scaled_by_power(e + (1.0 - power_of_two_64(-k)), n);
  return x == 0.0 ? x : result;
}

INLINE f64 sigmoid(f64 x) {
  f64 e = exp(-abs(x));
  return (signbit(x) ? e : 1.0) / (1.0 + e);
}

INLINE f64 tanh(f64 x) {
  f64 a = abs(x);
  f64 t = expm1(2.0 * (a > 22.0 ? 22.0 : a));
  f64 q = (a > 1.0 ? 2.0 : t) / (t + 2.0);  // 1 - q rounds once near 1, where 1 - tanh^2 asks for all digits
  return copysign(a > 1.0 ? 1.0 - q : q, x);
}

// sinh and cosh from h = e^|x| / 2: h -+ 1/(4h).
INLINE f64 half_exp(f64 a) {
  f64 n, e = reduced_expm1(a > 711.0 ? 711.0 : a, n);
  return scaled_by_power(1.0 + e, n - 1.0);
}
INLINE f64 cosh(f64 x) {
  f64 h = half_exp(abs(x));
  return h + 0.25 / h;
}
INLINE f64 sinh(f64 x) {
  f64 h = half_exp(abs(x)), z = x * x;
  f64 p = 2.8445264169895285e-15;
  p = mad(p, z, 7.646625361656657e-13);
  p = mad(p, z, 1.6059048396350562e-10);
  p = mad(p, z, 2.505210836405804e-08);
  p = mad(p, z, 2.755731922404034e-06);
  p = mad(p, z, 0.00019841269841269773);
  p = mad(p, z, 0.008333333333333333);
  p = mad(p, z, 0.16666666666666666);
  f64 small = mad(x * z, p, x);
  return abs(x) < 1.0 ? small : copysign(h - 0.25 / h, x);
}

// ln(x) = n ln(2) + high + low for a positive finite x; low has what rounding took from high.
INLINE f64 log_parts(f64 x, f64& n, f64& low) {
  bool tiny = x < 0x1p-1022;
  i64 u = bits<i64>(tiny ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdLL;
  n = bits<f64>((u >> 52) + 0x4338000000000000LL) - 0x1.8p52 - (tiny ? 54.0 : 0.0);
  f64 m = bits<f64>((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL);
  f64 f = m - 1.0, d = m + 1.0, d_low = m - (d - 1.0);
  f64 inverse = 1.0 / d, s = f * inverse;
  f64 s_low = (mad(-s, d, f) - s * d_low) * inverse, z = s * s;
  f64 p = 0.13089445145246312;
  p = mad(p, z, 0.1326850331279476);
  p = mad(p, z, 0.15386249788196105);
  p = mad(p, z, 0.181817954545265);
  p = mad(p, z, 0.2222222239345263);
  p = mad(p, z, 0.28571428570795937);
  p = mad(p, z, 0.4000000000000089);
  p = mad(p, z, 0.6666666666666666);
  low = mad(s * z, p, 2.0 * s_low);
  return 2.0 * s;
}

// The limits of a logarithm, where `result` holds for positive finite x.
INLINE f64 log_limits(f64 x, f64 result) {
  result = x == __builtin_inf() ? x : result;
  result = x == 0.0 ? -__builtin_inf() : result;
  return x >= 0.0 ? result : __builtin_nan("");
}

// n*a + high + low, with n*a exact and above high unless it is 0.
INLINE f64 log_sum(f64 n_a, f64 high, f64 low) {
  f64 t = n_a + high;
  return t + ((n_a - t) + high + low);
}

INLINE f64 log(f64 x) {
  f64 n, low, high = log_parts(x, n, low);
  return log_limits(x, log_sum(n * 0.693147180559663, high, mad(n, 2.8235290563031577e-13, low)));
}

// (high + low) * (a + a_low), the rest into low.
INLINE f64 times(f64 high, f64& low, f64 a, f64 a_low) {
  f64 product = high * a;
  low = mad(high, a, -product) + mad(high, a_low, low * a);
  return product;
}

INLINE f64 log2(f64 x) {
  f64 n, low, high = log_parts(x, n, low);
  high = times(high, low, 1.4426950408889634, 2.0355273740931033e-17);
  return log_limits(x, log_sum(n, high, low));
}

INLINE f64 log10(f64 x) {
  f64 n, low, high = log_parts(x, n, low);
  high = times(high, low, 0.4342944819032518, 1.098319650216765e-17);
  return log_limits(x, log_sum(n * 0.30102999566383914, high, mad(n, 1.42050232272661e-13, low)));
}

INLINE f64 log1p(f64 x) {
  f64 u = 1.0 + x, b = u - 1.0;
  f64 lost = (1.0 - (u - b)) + (x - b);
  f64 n, low, high = log_parts(u, n, low);
  f64 result = log_limits(u, log_sum(n * 0.693147180559663, high, mad(n, 2.8235290563031577e-13, low + lost / u)));
  result = x == __builtin_inf() ? x : result;
  return abs(x) < 0x1p-54 ? x : result;
}

// e^(high + low), where low is small.
INLINE f64 exp_of_sum(f64 high, f64 low) {
  f64 c = within(high, -750.0, 710.0);
  f64 n, e = reduced_expm1(c, n);
  low = c == high ? low : 0.0;
  return scaled_by_power(1.0 + (e + mad(e, low, low)), n);
}

// ln(x) to 2^-64, high + low: what pow multiplies by up to 2^10 and still has 53 bits.
INLINE f64 log_exactly(f64 x, f64& low) {
  bool tiny = x < 0x1p-1022;
  i64 u = bits<i64>(tiny ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdLL;
  f64 n = bits<f64>((u >> 52) + 0x4338000000000000LL) - 0x1.8p52 - (tiny ? 54.0 : 0.0);
  f64 m = bits<f64>((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL);
  f64 f = m - 1.0, d = m + 1.0, d_low = m - (d - 1.0);
  f64 inverse = 1.0 / d, s = f * inverse;
  f64 s_low = (mad(-s, d, f) - s * d_low) * inverse;
  f64 z = s * s, z_low = mad(s, s, -z) + 2.0 * s * s_low;
  f64 c = s * z, c_low = mad(s, z, -c) + mad(s, z_low, s_low * z);
  f64 third = times(c, c_low, 0.6666666666666666, 3.700743415417188e-17);
  f64 p = 0.12915929658165393;
  p = mad(p, z, 0.13285770192868424);
  p = mad(p, z, 0.15385580435394985);
  p = mad(p, z, 0.1818180817006874);
  p = mad(p, z, 0.22222222271577444);
  p = mad(p, z, 0.2857142857133746);
  p = mad(p, z, 0.4000000000000003);
  f64 sum = 2.0 * s + third;
  f64 sum_low = (2.0 * s - sum) + third + c_low + mad(c * z, p, 2.0 * s_low);
  f64 whole = n * 0.693147180559663, high = whole + sum;
  f64 tail = (whole - high) + sum + mad(n, 2.8235290563031577e-13, sum_low);
  f64 result = high + tail;
  low = (high - result) + tail;
  return result;
}

INLINE f64 pow(f64 x, f64 y) {
  f64 a = abs(x), low, high = log_exactly(a, low);
  high = a == 0.0 ? -__builtin_inf() : high;
  high = a == __builtin_inf() ? __builtin_inf() : high;
  f64 product = y * high;
  f64 r = exp_of_sum(product, mad(y, high, -product) + y * low);
  r = (a != a) | (y != y) ? x + y : r;
  r = (a == 1.0) & (y == y) ? 1.0 : r;
  bool whole = floor(y) == y;
  f64 half = 0.5 * y;
  bool odd = whole & (floor(half) != half);
  r = signbit(x) & odd ? -r : r;
  r = (x < 0.0) & !whole & (a != __builtin_inf()) ? __builtin_nan("") : r;
  return (x == 1.0) | (y == 0.0) ? 1.0 : r;
}

// (1 + t) erfcx(t) for t >= 0, with u = (t - 3) / (t + 3): e^(t^2) erfc(t) is e^(t^2) times too small to fit itself.
INLINE f64 erfcx_times(f64 u) {
  f64 p = -2.00667897005419e-09;
  p = mad(p, u, -4.6769086944930105e-09);
  p = mad(p, u, 1.3663128832371395e-08);
  p = mad(p, u, 4.650757569109732e-08);
  p = mad(p, u, -4.4428126680848246e-08);
  p = mad(p, u, -2.886393836341591e-07);
  p = mad(p, u, 5.910090751550517e-08);
  p = mad(p, u, 1.5854992547137853e-06);
  p = mad(p, u, 2.614321008432706e-07);
  p = mad(p, u, -8.988608999546634e-06);
  p = mad(p, u, -1.5146395561500665e-06);
  p = mad(p, u, 5.611893889965842e-05);
  p = mad(p, u, -2.0551546312810383e-05);
  p = mad(p, u, -0.0003672883948538694);
  p = mad(p, u, 0.0006458141928859357);
  p = mad(p, u, 0.001618569116902844);
  p = mad(p, u, -0.009750689291634421);
  p = mad(p, u, 0.021957764013331795);
  p = mad(p, u, -0.023803913108733823);
  p = mad(p, u, -0.010235388899028329);
  p = mad(p, u, 0.09902075367944152);
  p = mad(p, u, -0.23092733308380903);
  p = mad(p, u, 0.7160046047255598);
  return p;
}

// erfc(t) for 0.5 <= t.
INLINE f64 erfc_tail(f64 t) {
  f64 c = t > 28.0 ? 28.0 : t, square = c * c;
  f64 e = exp_of_sum(-square, mad(-c, c, square));
  return e * (erfcx_times((c - 3.0) / (c + 3.0)) / (1.0 + c));
}

INLINE f64 erf_middle(f64 x) {
  f64 z = x * x;
  f64 p = 5.957176147748911e-11;
  p = mad(p, z, -1.1372848856791674e-09);
  p = mad(p, z, 1.4659775274047436e-08);
  p = mad(p, z, -1.6350312701054695e-07);
  p = mad(p, z, 1.6461000484121368e-06);
  p = mad(p, z, -1.4925595266831182e-05);
  p = mad(p, z, 0.0001205533111164271);
  p = mad(p, z, -0.000854832698083379);
  p = mad(p, z, 0.0052239776248180145);
  p = mad(p, z, -0.026866170645076792);
  p = mad(p, z, 0.11283791670954879);
  p = mad(p, z, -0.3761263890318375);
  p = mad(p, z, 0.1283791670955126);
  return mad(x, p, x);
}

INLINE f64 erf(f64 x) {
  f64 a = abs(x);
  f64 tail = copysign(1.0 - erfc_tail(a > 6.0 ? 6.0 : a), x);
  return a < 1.0 ? erf_middle(x) : tail;
}

INLINE f64 erfc(f64 x) {
  f64 tail = erfc_tail(abs(x));
  tail = x < 0.0 ? 2.0 - tail : tail;
  return abs(x) < 0.5 ? 1.0 - erf_middle(x) : tail;
}

INLINE f64 normal_cdf(f64 x) {
  f64 a = abs(x), c = a > 39.0 ? 39.0 : a, t = c * 0.7071067811865476, square = 0.5 * c * c;
  f64 e = exp_of_sum(-square, -0.5 * mad(c, c, -2.0 * square));
  f64 tail = 0.5 * e * (erfcx_times((t - 3.0) / (t + 3.0)) / (1.0 + t));
  tail = x < 0.0 ? tail : 1.0 - tail;
  return x == x ? tail : x;
}
INLINE f64 gelu(f64 x) { return x * normal_cdf(x); }
INLINE f64 gelu_slope(f64 x) { return mad(x * 0.3989422804014327, exp(-0.5 * x * x), normal_cdf(x)); }

// asinh, acosh and atanh from log1p; above 2^28 the logarithm of twice the number.
INLINE f64 asinh(f64 x) {
  f64 a = abs(x), big = a > 0x1p28 ? 1.0 : 0.0;
  f64 z = a > 0x1p28 ? 0.0 : a * a;
  f64 result = log1p(a - big + z / (1.0 + sqrt(z + 1.0))) + big * 0.6931471805599453;
  return copysign(result, x);
}
INLINE f64 acosh(f64 x) {
  f64 big = x > 0x1p28 ? 1.0 : 0.0, t = x - 1.0;
  f64 z = x > 0x1p28 ? 0.0 : sqrt(2.0 * t + t * t);
  return x >= 1.0 ? log1p(t + z) + big * 0.6931471805599453 : __builtin_nan("");
}
INLINE f64 atanh(f64 x) {
  f64 a = abs(x);
  f64 result = 0.5 * log1p(2.0 * a / (1.0 - a));
  return a <= 1.0 ? copysign(result, x) : __builtin_nan("");
}

// ---- inverse trigonometric functions, float64 ----

// atan(y / x) for y, x >= 0, not both 0: the angle of (x, y) less 0, 45 or 90 degrees has a tangent below 0.415.
INLINE f64 angle_of(f64 y, f64 x) {
  bool low = y < 0.41421356237309503 * x, high = y * 0.41421356237309503 > x;
  f64 over = low ? y : high ? -x : y - x;
  f64 under = low ? x : high ? y : y + x;
  f64 t = over / under, z = t * t;
  f64 p = 0.016285183029865667;
  p = mad(p, z, -0.034570044186095536);
  p = mad(p, z, 0.04551573086664191);
  p = mad(p, z, -0.052304498567092406);
  p = mad(p, z, 0.05878928398517232);
  p = mad(p, z, -0.06666424833613552);
  p = mad(p, z, 0.07692296372129964);
  p = mad(p, z, -0.09090908753400499);
  p = mad(p, z, 0.11111111105153429);
  p = mad(p, z, -0.14285714285659806);
  p = mad(p, z, 0.19999999999999804);
  p = mad(p, z, -0.3333333333333333);
  f64 whole = low ? 0.0 : high ? 1.5707963267948966 : 0.7853981633974483;
  f64 rest = low ? 0.0 : high ? 6.123233995736766e-17 : 3.061616997868383e-17;
  return whole + (t + mad(t * z, p, rest));
}

INLINE f64 atan(f64 x) {
  f64 a = abs(x);
  f64 result = copysign(angle_of(a > 0x1p60 ? 0x1p60 : a, 1.0), x);
  return x == x ? result : x;
}

INLINE f64 atan2(f64 y, f64 x) {
  f64 b = abs(y), a = abs(x), most = b > a ? b : a;
  f64 scale = most > 0x1p900 ? 0x1p-100 : most < 0x1p-900 ? 0x1p100 : 1.0;
  bool endless = isinf(b) | isinf(a);
  b = endless ? (isinf(b) ? 1.0 : 0.0) : b * scale;
  a = endless ? (isinf(a) ? 1.0 : 0.0) : a * scale;
  f64 result = angle_of(b, b + a == 0.0 ? 1.0 : a);
  result = signbit(x) ? 3.141592653589793 - (result - 1.2246467991473532e-16) : result;
  return (y != y) | (x != x) ? x + y : copysign(result, y);
}

// asin(x) for |x| <= 1/2
INLINE f64 asin_middle(f64 x) {
  f64 z = x * x;
  f64 p = 0.02961201126495512;
  p = mad(p, z, -0.01924167174674304);
  p = mad(p, z, 0.019554513336123378);
  p = mad(p, z, 0.0030448799094556773);
  p = mad(p, z, 0.009319560794767446);
  p = mad(p, z, 0.009621842970100282);
  p = mad(p, z, 0.011566459612121669);
  p = mad(p, z, 0.01396378001220357);
  p = mad(p, z, 0.017352816540325496);
  p = mad(p, z, 0.02237215744350722);
  p = mad(p, z, 0.03038194447553234);
  p = mad(p, z, 0.044642857142551895);
  p = mad(p, z, 0.07500000000000118);
  p = mad(p, z, 0.16666666666666666);
  return mad(x * z, p, x);
}

INLINE f64 asin(f64 x) {
  f64 a = abs(x);
  bool inner = a <= 0.5;
  f64 r = asin_middle(inner ? x : sqrt(0.5 - 0.5 * a));
  return inner ? r : copysign(1.5707963267948966 - (2.0 * r - 6.123233995736766e-17), x);
}

INLINE f64 acos(f64 x) {
  f64 a = abs(x);
  bool inner = a <= 0.5;
  f64 r = asin_middle(inner ? x : sqrt(0.5 - 0.5 * a));
  f64 outer = signbit(x) ? 3.141592653589793 - (2.0 * r - 1.2246467991473532e-16) : 2.0 * r;
  return inner ? 1.5707963267948966 - (r - 6.123233995736766e-17) : outer;
}

// ---- stores past the caches ----

#if defined(__SSE2__) && (defined(__clang__) || defined(__GNUC__))
#define ASSAY_STREAMS
typedef i64 line_part __attribute__((vector_size(16), may_alias));
typedef i64 loose_part __attribute__((vector_size(16), aligned(1), may_alias));
INLINE void stream_part(void* to, loose_part x) {
#ifdef __clang__
  __builtin_nontemporal_store((line_part)x, (line_part*)to);
#else
  typedef i64 plain __attribute__((vector_size(16)));
  __builtin_ia32_movntdq((plain*)to, (plain)x);
#endif
}
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define ASSAY_STREAMS_LINES
#endif

// to[k] = from[k] for k < n. Whole lines of memory are not read before they are written, and do not stay in a cache.
template <class T>
INLINE void stream(T* to, const T* from, i64 n) {
  i64 size = n * sizeof(T), at = 0;
#ifdef ASSAY_STREAMS
  char* target = (char*)to;
  const char* source = (const char*)from;
  at = least((i64)(-(u64)target & 63), size);
  __builtin_memcpy(target, source, at);
  for (; at + 64 <= size; at += 64) {
#ifdef ASSAY_STREAMS_LINES
    typedef i64 line __attribute__((vector_size(64)));
    typedef i64 loose __attribute__((vector_size(64), aligned(1), may_alias));
    __builtin_ia32_movntdq512((line*)(target + at), (line)*(const loose*)(source + at));
#else
#pragma GCC unroll 4
    for (int part = 0; part < 64; part += 16) stream_part(target + at + part, *(const loose_part*)(source + at + part));
#endif
  }
#endif
  __builtin_memcpy((char*)to + at, (const char*)from + at, size - at);
}

// Past stores come before all that follow, for every other thread.
INLINE void drain() {
#if defined(ASSAY_STREAMS)
  __builtin_ia32_sfence();
#endif
}

// ---- memory of a call's own ----

// `at`: n elements, until the end of the scope.
template <class T>
struct Scratch {
  T* at;
  explicit Scratch(i64 n) : at((T*)__builtin_malloc(n * sizeof(T))) {
    if (!at) __builtin_trap();
  }
  ~Scratch() { __builtin_free(at); }
};

// The n elements from `at` on are about to be read, if they are there at all.
template <class T>
INLINE void fetch(const T* at, i64 n) {
#ifdef __GNUC__
  for (i64 k = 0; k < n * (i64)sizeof(T); k += 64) __builtin_prefetch((const char*)at + k);
#endif
}

// ---- libm ----

INLINE f64 sin_far(f64 x) { return __builtin_sin(x); }
INLINE f64 cos_far(f64 x) { return __builtin_cos(x); }
INLINE f64 tan_far(f64 x) { return __builtin_tan(x); }

// r with x = n pi/2 + r, |r| <= pi/4, where |x| < 2^17: of pi/2 in three parts of 24 bits the first product cancels exactly.
// `quadrant` is n.
INLINE f32 near_quadrant(f32 x, i32& quadrant) {
  f32 shifted = mad(x, 0x1.45f306p-1f, 0x1.8p23f), n = shifted - 0x1.8p23f;
  quadrant = bits<i32>(shifted);
  return mad(n, -0x1.846988p-48f, mad(n, -0x1.4442d0p-24f, mad(n, -0x1.921fb4p+0f, x)));
}
// The same with what rounding took from r: of a tangent that comes to an ulp.
INLINE f32 near_quadrant(f32 x, i32& quadrant, f32& low) {
  f32 shifted = mad(x, 0x1.45f306p-1f, 0x1.8p23f), n = shifted - 0x1.8p23f;
  quadrant = bits<i32>(shifted);
  f32 high = mad(n, -0x1.921fb4p+0f, x), part = n * 0x1.4442d0p-24f, r = high - part;
  low = mad(n, -0x1.846988p-48f, ((high - r) - part) - mad(n, 0x1.4442d0p-24f, -part));
  return r;
}
// The same of |x| < 2^20, with parts of 53 bits.
INLINE f64 near_quadrant(f64 x, i64& quadrant) {
  f64 shifted = mad(x, 0.6366197723675814, 0x1.8p52), n = shifted - 0x1.8p52;
  quadrant = bits<i64>(shifted);
  return mad(n, 0x1.f1976b7ed8fbcp-110, mad(n, -0x1.1a62633145c07p-54, mad(n, -0x1.921fb54442d18p+0, x)));
}
// The sine, cosine and tangent of |r| <= pi/4.
INLINE f32 near_sine(f32 r) {
  f32 s = r * r, p = mad(s, 0x1.6dbdd2p-19f, -0x1.a013a6p-13f);
  p = mad(p, s, 0x1.11110ep-7f);
  p = mad(p, s, -0x1.555556p-3f);
  return mad(r * s, p, r);
}
INLINE f32 near_cosine(f32 r) {
  f32 s = r * r, p = mad(s, -0x1.25242ap-22f, 0x1.a015c4p-16f);
  p = mad(p, s, -0x1.6c16c0p-10f);
  p = mad(p, s, 0x1.555556p-5f);
  return mad(s * s, p, mad(s, -0.5f, 1.0f));
}
INLINE f64 near_sine(f64 r) {
  f64 s = r * r, p = 1.591810123027412e-10;
  p = mad(p, s, -2.5051131455427946e-08);
  p = mad(p, s, 2.755731610068303e-06);
  p = mad(p, s, -0.0001984126983675497);
  p = mad(p, s, 0.008333333333330946);
  p = mad(p, s, -0.16666666666666666);
  return mad(r * s, p, r);
}
INLINE f64 near_cosine(f64 r) {
  f64 s = r * r, p = -1.1382614868556325e-11;
  p = mad(p, s, 2.0876146024689747e-09);
  p = mad(p, s, -2.7557317270560326e-07);
  p = mad(p, s, 2.4801587298763433e-05);
  p = mad(p, s, -0.0013888888888887395);
  p = mad(p, s, 0.041666666666666664);
  return mad(s * s, p, mad(s, -0.5, 1.0));
}
INLINE f32 near_tangent(f32 r, f32 low, bool is_odd) {
  f32 s = r * r, p = 0x1.d52858p-10f;
  p = mad(p, s, -0x1.da2898p-21f);
  p = mad(p, s, 0x1.221002p-8f);
  p = mad(p, s, 0x1.1a196ap-7f);
  p = mad(p, s, 0x1.66fc42p-6f);
  p = mad(p, s, 0x1.ba14d4p-5f);
  p = mad(p, s, 0x1.11111ep-3f);
  p = mad(p, s, 0x1.555556p-2f);
  f32 cube = r * s, cube_low = mad(r, mad(r, r, -s), mad(r, s, -cube));
  f32 q = mad(cube, p, mad(cube_low, p, mad(low, s, low))), t = r + q, rest = (r - t) + q;
  f32 y = -1.0f / t;  // of t + rest: one step of Newton's
  return is_odd ? mad(y, mad(y, rest, mad(y, t, 1.0f)), y) : t;
}
INLINE f64 near_tangent(f64 r, bool is_odd) {
  f64 sine = near_sine(r), cosine = near_cosine(r);
  return (is_odd ? -cosine : sine) / (is_odd ? sine : cosine);
}
struct Far {
  INLINE bool is_far(f32 x, f32) { return (abs(x) >= 0x1p17f) & isfinite(x); }
  INLINE bool is_far(f64 x, f64) { return (abs(x) >= 0x1p20) & isfinite(x); }
};
struct Sine : Far {
  INLINE f32 near(f32 x, f32) {
    i32 quadrant;
    f32 r = near_quadrant(x, quadrant);
    f32 value = quadrant & 1 ? near_cosine(r) : near_sine(r);
    return x == 0.0f ? x : bits<f32>(bits<i32>(value) ^ ((quadrant & 2) << 30));
  }
  INLINE f64 near(f64 x, f64) {
    i64 quadrant;
    f64 r = near_quadrant(x, quadrant);
    f64 value = quadrant & 1 ? near_cosine(r) : near_sine(r);
    return x == 0.0 ? x : bits<f64>(bits<i64>(value) ^ ((quadrant & 2) << 62));
  }
  FAR_PATH f32 far(f32 x, f32) { return sin_far(x); }
  FAR_PATH f64 far(f64 x, f64) { return sin_far(x); }
};
struct Cosine : Far {
  INLINE f32 near(f32 x, f32) {
    i32 quadrant;
    f32 r = near_quadrant(x, quadrant);
    f32 value = quadrant & 1 ? near_sine(r) : near_cosine(r);
    return bits<f32>(bits<i32>(value) ^ (((quadrant + 1) & 2) << 30));
  }
  INLINE f64 near(f64 x, f64) {
    i64 quadrant;
    f64 r = near_quadrant(x, quadrant);
    f64 value = quadrant & 1 ? near_sine(r) : near_cosine(r);
    return bits<f64>(bits<i64>(value) ^ (((quadrant + 1) & 2) << 62));
  }
  FAR_PATH f32 far(f32 x, f32) { return cos_far(x); }
  FAR_PATH f64 far(f64 x, f64) { return cos_far(x); }
};
struct Tangent : Far {
  INLINE f32 near(f32 x, f32) {
    i32 quadrant;
    f32 low, r = near_quadrant(x, quadrant, low);
    return x == 0.0f ? x : near_tangent(r, low, quadrant & 1);
  }
  INLINE f64 near(f64 x, f64) {
    i64 quadrant;
    f64 r = near_quadrant(x, quadrant);
    return x == 0.0 ? x : near_tangent(r, quadrant & 1);
  }
  FAR_PATH f32 far(f32 x, f32) { return tan_far(x); }
  FAR_PATH f64 far(f64 x, f64) { return tan_far(x); }
};
ASSAY_LANES(sin, Sine)
ASSAY_LANES(cos, Cosine)
ASSAY_LANES(tan, Tangent)

// ---- transposes ----

template <int... I>
struct Places {};
template <int n, int... I>
struct PlacesTo : PlacesTo<n - 1, n - 1, I...> {};
template <int... I>
struct PlacesTo<0, I...> {
  typedef Places<I...> type;
};

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define ASSAY_TRANSPOSES
// A vector of 64 bytes is 4 parts of 16. The first or second halves of each part of `a` and `b`, alternately.
template <int half, class V, int... I>
INLINE V interleaved(V a, V b, Places<I...>) {
  constexpr int n = sizeof...(I), part = n / 4;
  return __builtin_shufflevector(a, b, (I / part * part + half * part / 2 + I % part / 2 + I % 2 * n)...);
}

// Parts p and q of `a`, then those of `b`.
template <int p, int q, class V, int... I>
INLINE V parts(V a, V b, Places<I...>) {
  constexpr int n = sizeof...(I), part = n / 4;
  return __builtin_shufflevector(a, b, ((I / part % 2 ? q : p) * part + I % part + I / (2 * part) * n)...);
}

// One block whose rows are 64 bytes, in registers: first what is inside of each 16 bytes, then those as wholes.
template <class T>
INLINE void transpose_block(T* to, i64 to_step, const T* from, i64 from_step) {
  constexpr int n = 64 / sizeof(T), part = n / 4;
  constexpr typename PlacesTo<n>::type places{};
  typedef T vector __attribute__((vector_size(64)));
  typedef T loose __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  vector rows[n], next[n];
#pragma GCC unroll 64
  for (int i = 0; i < n; i++) rows[i] = *(const loose*)(from + i * from_step);
#pragma GCC unroll 4
  for (int gap = 1; gap < part; gap *= 2) {
#pragma GCC unroll 64
    for (int i = 0; i < n; i += 2) {
      int first = i / part * part + i % part / 2, second = first + part / 2;
      next[i] = interleaved<0>(rows[first], rows[second], places);
      next[i + 1] = interleaved<1>(rows[first], rows[second], places);
    }
#pragma GCC unroll 64
    for (int i = 0; i < n; i++) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < part; i++) {
    vector a = rows[i], b = rows[i + part], c = rows[i + 2 * part], d = rows[i + 3 * part];
    vector low = parts<0, 1>(a, b, places), low2 = parts<0, 1>(c, d, places);
    vector high = parts<2, 3>(a, b, places), high2 = parts<2, 3>(c, d, places);
    *(loose*)(to + i * to_step) = parts<0, 2>(low, low2, places);
    *(loose*)(to + (i + part) * to_step) = parts<1, 3>(low, low2, places);
    *(loose*)(to + (i + 2 * part) * to_step) = parts<0, 2>(high, high2, places);
    *(loose*)(to + (i + 3 * part) * to_step) = parts<1, 3>(high, high2, places);
  }
}
#endif
#endif

// to[c * to_step + r] = from[r * from_step + c] for c < columns, r < rows
template <class T>
INLINE void transpose_words(T* to, i64 to_step, const T* from, i64 from_step, i64 columns, i64 rows) {
  typedef T word __attribute__((may_alias));  // the memory holds floats
#ifdef ASSAY_TRANSPOSES
  constexpr i64 n = 64 / sizeof(T);
  if (rows >= n && columns >= n) {  // the last blocks reach back over those before them, so that nothing is left
    for (i64 r = 0; r < rows; r += n)
      for (i64 c = 0; c < columns; c += n) {
        i64 row = least(r, rows - n), column = least(c, columns - n);
        transpose_block(to + column * to_step + row, to_step, from + row * from_step + column, from_step);
      }
    return;
  }
#endif
  for (i64 r = 0; r < rows; r++)
    for (i64 c = 0; c < columns; c++) ((word*)to)[c * to_step + r] = ((const word*)from)[r * from_step + c];
}

INLINE void transpose(f32* to, i64 to_step, const f32* from, i64 from_step, i64 columns, i64 rows) {
  transpose_words((u32*)to, to_step, (const u32*)from, from_step, columns, rows);
}
INLINE void transpose(i32* to, i64 to_step, const i32* from, i64 from_step, i64 columns, i64 rows) {
  transpose_words((u32*)to, to_step, (const u32*)from, from_step, columns, rows);
}
INLINE void transpose(f64* to, i64 to_step, const f64* from, i64 from_step, i64 columns, i64 rows) {
  transpose_words((u64*)to, to_step, (const u64*)from, from_step, columns, rows);
}
INLINE void transpose(i64* to, i64 to_step, const i64* from, i64 from_step, i64 columns, i64 rows) {
  transpose_words((u64*)to, to_step, (const u64*)from, from_step, columns, rows);
}
template <class T>  // of one or two bytes: float16 and bfloat16 are such by themselves
INLINE void transpose(T* to, i64 to_step, const T* from, i64 from_step, i64 columns, i64 rows) {
  transpose_words(to, to_step, from, from_step, columns, rows);
}

// ---- special functions, float64; float32 by way of it ----

INLINE f64 erfcx(f64 x) {
  f64 a = abs(x), u = a > 1e30 ? 1.0 : (a - 3.0) / (a + 3.0);
  f64 p = -3.7698271449228446e-11;
  p = mad(p, u, 3.6754009485815653e-10);
  p = mad(p, u, 7.922141235156038e-10);
  p = mad(p, u, -3.4763840423459965e-09);
  p = mad(p, u, -7.711197343078481e-09);
  p = mad(p, u, 1.6212636352168762e-08);
  p = mad(p, u, 5.200011166540021e-08);
  p = mad(p, u, -4.69539684043775e-08);
  p = mad(p, u, -2.944580282267343e-07);
  p = mad(p, u, 6.068916171426457e-08);
  p = mad(p, u, 1.5894231056958133e-06);
  p = mad(p, u, 2.6076262607415674e-07);
  p = mad(p, u, -8.990349876638299e-06);
  p = mad(p, u, -1.5144437300430435e-06);
  p = mad(p, u, 5.6119448517602835e-05);
  p = mad(p, u, -2.0551586906895578e-05);
  p = mad(p, u, -0.0003672884911111177);
  p = mad(p, u, 0.0006458141988105156);
  p = mad(p, u, 0.0016185691280417114);
  p = mad(p, u, -0.00975068929220507);
  p = mad(p, u, 0.021957764012615257);
  p = mad(p, u, -0.023803913108702772);
  p = mad(p, u, -0.010235388899007105);
  p = mad(p, u, 0.09902075367944083);
  p = mad(p, u, -0.23092733308380922);
  p = mad(p, u, 0.7160046047255598);
  f64 right = p / (1.0 + a), square = x * x;
  f64 left = 2.0 * exp_of_sum(square, mad(x, x, -square)) - right;
  return x >= 0.0 ? right : square > 750.0 ? __builtin_inf() : left;
}

// y with erf(y) = a and erfc(y) = c, for 0 <= a = 1 - c: sqrt(w) K(w), where w = -ln(1 - a^2). In the tail one step of
// Halley's gives the digits that rounding took from w.
INLINE f64 inverse_erf(f64 a, f64 c) {
  f64 square = a * a;
  f64 rest = a < 0.5 ? 1.0 - square : c * (2.0 - c);
  f64 lost = a < 0.5 ? (1.0 - rest) - square - mad(a, a, -square) : 0.0;
  f64 n, low, high = log_parts(rest, n, low);
  f64 w = -log_sum(n * 0.693147180559663, high, mad(n, 2.8235290563031577e-13, low + lost / rest));
  f64 p = -1.387871736438745e-21;
  p = mad(p, w, 9.303665065806547e-20);
  p = mad(p, w, -2.848206610479115e-18);
  p = mad(p, w, 5.2224897124502505e-17);
  p = mad(p, w, -6.297433650136119e-16);
  p = mad(p, w, 5.132066826297674e-15);
  p = mad(p, w, -2.7806439296457507e-14);
  p = mad(p, w, 9.649072581171247e-14);
  p = mad(p, w, -2.618008098106653e-13);
  p = mad(p, w, 1.313948776551972e-12);
  p = mad(p, w, -5.306122583049475e-12);
  p = mad(p, w, -2.2085566987067333e-11);
  p = mad(p, w, 1.9461952752476401e-10);
  p = mad(p, w, 1.2936599143931892e-09);
  p = mad(p, w, -1.1412330174054293e-08);
  p = mad(p, w, -7.187211816435096e-08);
  p = mad(p, w, 7.471960077563425e-07);
  p = mad(p, w, 4.331606120929031e-06);
  p = mad(p, w, -6.203987427738328e-05);
  p = mad(p, w, -0.000296422228060445);
  p = mad(p, w, 0.010456935171464943);
  p = mad(p, w, 0.886226925452758);
  f64 s = sqrt(w), inner = a < 1e-8 ? a * 0.886226925452758 : s * p;
  f64 u = (s - 3.0) / (s + 3.0);
  p = -0.4545461427660899;
  p = mad(p, u, 1.9356434593540472);
  p = mad(p, u, -3.1729252836893007);
  p = mad(p, u, 1.9777982166275518);
  p = mad(p, u, 0.941788051644896);
  p = mad(p, u, -2.6552170436402465);
  p = mad(p, u, 2.164726372054158);
  p = mad(p, u, -0.8642385754556545);
  p = mad(p, u, 0.019363730271372045);
  p = mad(p, u, 0.21227528702745532);
  p = mad(p, u, -0.13119886463886082);
  p = mad(p, u, -0.034674394515005084);
  p = mad(p, u, 0.11679007073006832);
  p = mad(p, u, 0.9442673353964879);
  f64 y = s * p, h = (c - erfc_tail(y)) * exp(y * y) * 0.886226925452758;
  return w < 6.0 ? inner : y - h / (1.0 + y * h);
}

INLINE f64 erfinv(f64 x) {
  f64 a = abs(x);
  f64 result = copysign(inverse_erf(a, 1.0 - a), x);
  result = a == 1.0 ? copysign(__builtin_inf(), x) : result;
  return a <= 1.0 ? result : __builtin_nan("");
}

INLINE f64 ndtri(f64 p) {
  f64 side = p > 0.5 ? 1.0 - p : p;
  f64 y = 1.4142135623730951 * inverse_erf(1.0 - 2.0 * side, 2.0 * side);
  y = side == 0.0 ? __builtin_inf() : y;
  y = p > 0.5 ? y : 0.0 - y;
  return (p >= 0.0) & (p <= 1.0) ? y : __builtin_nan("");
}

// e^-|x| I0(x) and e^-|x| I1(x) / |x|: in x up to 8, in 1/x beyond.
INLINE f64 i0e(f64 x) {
  f64 a = abs(x), u = 0.25 * (a < 8.0 ? a : 8.0) - 1.0;
  f64 p = -1.1662904878442954e-09;
  p = mad(p, u, 4.469372581856615e-09);
  p = mad(p, u, -7.860369707508212e-09);
  p = mad(p, u, 2.6273368345256394e-08);
  p = mad(p, u, -1.1339523685907105e-07);
  p = mad(p, u, 3.675592893288293e-07);
  p = mad(p, u, -1.0891964284507317e-06);
  p = mad(p, u, 3.2293850630678377e-06);
  p = mad(p, u, -9.25059710625537e-06);
  p = mad(p, u, 2.5202271984440893e-05);
  p = mad(p, u, -6.550956130635514e-05);
  p = mad(p, u, 0.0001624054672701359);
  p = mad(p, u, -0.0003829015089457559);
  p = mad(p, u, 0.0008563152483951447);
  p = mad(p, u, -0.0018118870527295522);
  p = mad(p, u, 0.0036171264596770616);
  p = mad(p, u, -0.006792399792271578);
  p = mad(p, u, 0.011960077903963348);
  p = mad(p, u, -0.019682654708082413);
  p = mad(p, u, 0.03017791202356886);
  p = mad(p, u, -0.04298594945226738);
  p = mad(p, u, 0.056777032019843215);
  p = mad(p, u, -0.06954119561742342);
  p = mad(p, u, 0.07927522590716898);
  p = mad(p, u, -0.08496338091615124);
  p = mad(p, u, 0.08734341617552291);
  p = mad(p, u, -0.08904344136075991);
  p = mad(p, u, 0.09451562853995103);
  p = mad(p, u, -0.11300432688620549);
  p = mad(p, u, 0.2070019212239867);
  f64 small = p, inverse = 1.0 / (a < 8.0 ? 8.0 : a);
  u = 16.0 * inverse - 1.0;
  p = 4.135870336904037e-11;
  p = mad(p, u, -1.4445666241808038e-10);
  p = mad(p, u, -3.0719032844097364e-10);
  p = mad(p, u, 9.544598596408217e-10);
  p = mad(p, u, 1.1661396927314527e-09);
  p = mad(p, u, -2.8927333669603943e-09);
  p = mad(p, u, -3.21251295103573e-09);
  p = mad(p, u, 5.1432089858622845e-09);
  p = mad(p, u, 7.396966587219158e-09);
  p = mad(p, u, -4.270649721363825e-09);
  p = mad(p, u, -1.335632771743214e-08);
  p = mad(p, u, -7.116744499757987e-09);
  p = mad(p, u, 7.543775238250733e-09);
  p = mad(p, u, 2.162446034312458e-08);
  p = mad(p, u, 3.9327123085832934e-08);
  p = mad(p, u, 8.871293193604678e-08);
  p = mad(p, u, 2.973597885290274e-07);
  p = mad(p, u, 1.483848150861771e-06);
  p = mad(p, u, 1.1143033791893046e-05);
  p = mad(p, u, 0.00013621607437737268);
  p = mad(p, u, 0.003360551983667876);
  p = mad(p, u, 0.40217650944500816);
  f64 result = a < 8.0 ? small : p * sqrt(inverse);
  return x == x ? result : x;
}
INLINE f64 i1e(f64 x) {
  f64 a = abs(x), u = 0.25 * (a < 8.0 ? a : 8.0) - 1.0;
  f64 p = -9.365751909742237e-11;
  p = mad(p, u, 3.727630409237771e-10);
  p = mad(p, u, -7.379291130374042e-10);
  p = mad(p, u, 2.6037822441041467e-09);
  p = mad(p, u, -1.1191257727176943e-08);
  p = mad(p, u, 3.8028049651067336e-08);
  p = mad(p, u, -1.2000364861910367e-07);
  p = mad(p, u, 3.759400376008922e-07);
  p = mad(p, u, -1.1380759138279984e-06);
  p = mad(p, u, 3.2938951625746042e-06);
  p = mad(p, u, -9.131846315273642e-06);
  p = mad(p, u, 2.4233756432468166e-05);
  p = mad(p, u, -6.142651349494123e-05);
  p = mad(p, u, 0.00014842124144631648);
  p = mad(p, u, -0.0003411747437353928);
  p = mad(p, u, 0.000744512345281566);
  p = mad(p, u, -0.0015388749636515487);
  p = mad(p, u, 0.003005762419557192);
  p = mad(p, u, -0.005534567760544582);
  p = mad(p, u, 0.00958396215077406);
  p = mad(p, u, -0.01557130925657511);
  p = mad(p, u, 0.023686016957724227);
  p = mad(p, u, -0.03367135551994034);
  p = mad(p, u, 0.044674572621255064);
  p = mad(p, u, -0.05528003922705058);
  p = mad(p, u, 0.0637674037134072);
  p = mad(p, u, -0.0684826062058255);
  p = mad(p, u, 0.0680575999095116);
  p = mad(p, u, -0.06112433802966629);
  p = mad(p, u, 0.044687709875608835);
  f64 small = p * x, inverse = 1.0 / (a < 8.0 ? 8.0 : a);
  u = 16.0 * inverse - 1.0;
  p = -3.8283098239014647e-11;
  p = mad(p, u, 1.513858549435606e-10);
  p = mad(p, u, 2.8795297002473246e-10);
  p = mad(p, u, -1.0032283190965858e-09);
  p = mad(p, u, -1.1153074851895528e-09);
  p = mad(p, u, 3.0582654028044287e-09);
  p = mad(p, u, 3.158127700170617e-09);
  p = mad(p, u, -5.508409408958088e-09);
  p = mad(p, u, -7.500258824785232e-09);
  p = mad(p, u, 4.7942444927275885e-09);
  p = mad(p, u, 1.3986230294575344e-08);
  p = mad(p, u, 7.118573210000024e-09);
  p = mad(p, u, -8.417810881556892e-09);
  p = mad(p, u, -2.3453111618217135e-08);
  p = mad(p, u, -4.3130341641824356e-08);
  p = mad(p, u, -1.0000323944983054e-07);
  p = mad(p, u, -3.483855125273481e-07);
  p = mad(p, u, -1.8349107416211804e-06);
  p = mad(p, u, -1.5038547201402334e-05);
  p = mad(p, u, -0.0002192357638187367);
  p = mad(p, u, -0.009749577193235751);
  p = mad(p, u, 0.3893984590258723);
  f64 result = a < 8.0 ? small : copysign(p * sqrt(inverse), x);
  return x == x ? result : x;
}
INLINE f64 i0(f64 x) { return exp(abs(x)) * i0e(x); }
INLINE f64 i1(f64 x) { return exp(abs(x)) * i1e(x); }

// sin(pi x) and cos(pi x)
INLINE f64 sin_pi(f64 x) {
  f64 n = __builtin_rint(2.0 * x), r = x - 0.5 * n, z = r * r;
  i64 quadrant = bits<i64>(within(n, -0x1p50, 0x1p50) + 0x1.8p52);
  f64 p = -2.2349456072460943e-08;
  p = mad(p, z, 7.949258149039524e-07);
  p = mad(p, z, -2.1915282920601744e-05);
  p = mad(p, z, 0.0004663027953897944);
  p = mad(p, z, -0.007370430944816936);
  p = mad(p, z, 0.08214588661108463);
  p = mad(p, z, -0.599264529320791);
  p = mad(p, z, 2.5501640398773455);
  p = mad(p, z, -5.16771278004997);
  f64 sine = mad(r * z, p, r * 3.141592653589793);
  p = 3.500312073703762e-09;
  p = mad(p, z, -1.3872781244548443e-07);
  p = mad(p, z, 4.303048928191089e-06);
  p = mad(p, z, -0.00010463810062667314);
  p = mad(p, z, 0.0019295743088292205);
  p = mad(p, z, -0.0258068913899647);
  p = mad(p, z, 0.23533063035889057);
  p = mad(p, z, -1.3352627688545895);
  p = mad(p, z, 4.0587121264167685);
  p = mad(p, z, -4.934802200544679);
  p = mad(p, z, 1.0);
  f64 value = quadrant & 1 ? p : sine;
  return quadrant & 2 ? -value : value;
}
INLINE f64 cos_pi(f64 x) { return sin_pi(0.5 - abs(x - 2.0 * __builtin_rint(0.5 * x))); }

// ln Gamma(x) for x > 0: near 1 and 2 from its roots, down to there by the product, above 8 by Stirling's series.
INLINE f64 lgamma_right(f64 x) {
  f64 y = (x < 1.0) | (x > 8.0) ? 1.5 : x, product = 1.0;
  for (int i = 0; i < 6; i++) {
    f64 less = y - 1.0;
    product = y > 2.0 ? product * less : product;
    y = y > 2.0 ? less : y;
  }
  f64 c = x < 1.0 ? x - 0.5 : y - 1.5;
  f64 p = -1.8046752031436395e-05;
  p = mad(p, c, 2.834678721123555e-05);
  p = mad(p, c, -2.205863515610156e-05);
  p = mad(p, c, 3.498234399652184e-05);
  p = mad(p, c, -6.76520724985272e-05);
  p = mad(p, c, 0.00010771837018407164);
  p = mad(p, c, -0.00016864972124333035);
  p = mad(p, c, 0.0002708943397948761);
  p = mad(p, c, -0.0004380225133830832);
  p = mad(p, c, 0.0007115651196832767);
  p = mad(p, c, -0.0011644126175534965);
  p = mad(p, c, 0.0019229132354157629);
  p = mad(p, c, -0.003212074149185382);
  p = mad(p, c, 0.00544645795718968);
  p = mad(p, c, -0.00942562244705625);
  p = mad(p, c, 0.01679709862897521);
  p = mad(p, c, -0.03130848750102174);
  p = mad(p, c, 0.06291140107458175);
  p = mad(p, c, -0.14595989591430608);
  p = mad(p, c, 0.4831289505409809);
  f64 logarithm = log(x < 1.0 ? x : x > 8.0 ? x : product);
  f64 roots = x < 1.0 ? x * (x - 1.0) : (y - 1.0) * (y - 2.0);
  f64 middle = mad(roots, p, x < 1.0 ? -logarithm : logarithm);
  f64 inverse = 1.0 / (x < 8.0 ? 8.0 : x), z = inverse * inverse;
  p = 0.005065904614765912;
  p = mad(p, z, -0.0018903829559755586);
  p = mad(p, z, 0.0008414700845084233);
  p = mad(p, z, -0.0005952365844987332);
  p = mad(p, z, 0.000793650789752374);
  p = mad(p, z, -0.002777777777773988);
  p = mad(p, z, 0.08333333333333333);
  f64 large = (x - 0.5) * (logarithm - 1.0) + mad(p, inverse, 0.4189385332046727);
  return x > 8.0 ? large : middle;
}
INLINE f64 lgamma(f64 x) {
  f64 a = abs(x), right = lgamma_right(a > 1e306 ? 1e306 : a);
  right = a > 1e305 ? __builtin_inf() : right;
  f64 left = log(3.141592653589793 / abs(a * sin_pi(a))) - right;
  left = a == __builtin_floor(a) ? __builtin_inf() : left;
  f64 result = x > 0.0 ? right : a < 1e-300 ? right : left;
  return x == x ? result : x;
}

// psi(x) for x > 0: up to 8 by its recurrence, then by the series of its difference to ln(x).
INLINE f64 digamma_right(f64 x) {
  f64 y = x, sum = 0.0;
  for (int i = 0; i < 8; i++) {
    sum = y < 8.0 ? sum + 1.0 / y : sum;
    y = y < 8.0 ? y + 1.0 : y;
  }
  f64 inverse = 1.0 / y, z = inverse * inverse;
  f64 p = -0.29942529766578396;
  p = mad(p, z, 0.08002337037084563);
  p = mad(p, z, -0.021051060807439938);
  p = mad(p, z, 0.007575459919165197);
  p = mad(p, z, -0.004166665501509004);
  p = mad(p, z, 0.003968253965999675);
  p = mad(p, z, -0.008333333333331664);
  p = mad(p, z, 0.08333333333333333);
  return log(y) - 0.5 * inverse - z * p - sum;
}
INLINE f64 digamma(f64 x) {
  bool left = x < 0.0;
  f64 result = digamma_right(left ? 1.0 - x : x);
  result = left ? result - 3.141592653589793 * cos_pi(x) / sin_pi(x) : result;
  result = left & (x == __builtin_floor(x)) ? __builtin_nan("") : result;
  return x == 0.0 ? copysign(__builtin_inf(), -x) : result;
}

// Six steps to the right and three terms of the asymptotic series, as eager: 5e-10 from the truth at worst. By
// reflection: pi^2 / sin(pi x)^2 - trigamma(1 - x), with the sine of pi x given.
INLINE f64 trigamma_reflected(f64 x, f64 sine) {
  bool left = x < 0.5;
  f64 y = left ? 1.0 - x : x, sum = 0.0;
  for (int i = 0; i < 6; i++) {
    sum += 1.0 / (y * y);
    y += 1.0;
  }
  f64 inverse = 1.0 / y, z = inverse * inverse;
  f64 p = z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42)));
  f64 right = sum + (1.0 + 0.5 * inverse + p) * inverse;
  f64 result = left ? 9.869604401089358 / (sine * sine) - right : right;
  return x == -__builtin_inf() ? __builtin_nan("") : result;
}
// At its poles eager divides by the sine of a rounded multiple of pi, which is not zero.
INLINE f64 trigamma(f64 x) { return trigamma_reflected(x, sin(3.141592653589793 * x)); }
INLINE f32 trigamma(f32 x) {
  bool pole = x < 0.0f & x == __builtin_floorf(x);
  return (f32)trigamma_reflected((f64)x, pole ? (f64)sin(3.14159274f * x) : sin_pi((f64)x));
}

// Sum of (q + k)^-s over k >= 0: the terms up to q + k > 9, then Euler and Maclaurin's series of the rest.
INLINE f64 zeta(f64 s, f64 q) {
  if (s == 1.0) return __builtin_inf();
  if (s < 1.0) return __builtin_nan("");
  if (q <= 0.0) {
    if (q == __builtin_floor(q)) return __builtin_inf();
    if (s != __builtin_floor(s)) return __builtin_nan("");
  }
  if ((s != s) | (q != q)) return __builtin_nan("");
  f64 a = q, sum = 0.0;
  for (int i = 0; i < 9 || a <= 9.0; i++, a += 1.0) {
    f64 term = __builtin_pow(a, -s);
    sum += term;
    if (abs(term) < 1e-17 * abs(sum)) return sum;
  }
  static const f64 factors[] = {
      0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07, 2.08767569878681e-08,
      -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16,
      5.5090028283602295e-18, -1.3954464685812522e-19};
  f64 power = __builtin_pow(a, -s), falling = s * power / a;
  sum += a * power / (s - 1.0) + 0.5 * power;
  for (int j = 0; j < 12; j++) {
    f64 term = falling * factors[j];
    sum += term;
    if (abs(term) < 1e-17 * abs(sum)) break;
    falling *= (s + (2 * j + 1)) * (s + (2 * j + 2)) / (a * a);
  }
  return sum;
}

// x K(w), where w = -ln(1 - x^2), by two polynomials: in w up to 5, in its square root beyond. They were fitted to the
// inverse at 40 digits, for the least relative error: 2e-9 and 1e-8. Source of the form: M. Giles, Approximating the
// erfinv function, 2012.
INLINE f32 erfinv(f32 x) {
  f32 a = abs(x), w = -log((1.0f - a) * (1.0f + a));
  bool is_near = w < 5.0f;
  f32 u = is_near ? w : sqrt(w) - 3.0f;
  f32 p = is_near ? 3.3557762e-10f : 0.0f;
  p = mad(p, u, is_near ? -1.7162192e-08f : 0.00011570503f);
  p = mad(p, u, is_near ? 3.098048e-07f : -0.0003095742f);
  p = mad(p, u, is_near ? -2.49792e-06f : -5.6777535e-05f);
  p = mad(p, u, is_near ? 5.8357396e-06f : 0.0014850935f);
  p = mad(p, u, is_near ? 4.0486586e-05f : -0.003597405f);
  p = mad(p, u, is_near ? -0.00012200238f : 0.005686973f);
  p = mad(p, u, is_near ? -0.0023385407f : -0.007637289f);
  p = mad(p, u, is_near ? 0.011550335f : 0.009445286f);
  p = mad(p, u, is_near ? 0.23201355f : 1.001675f);
  p = mad(p, u, is_near ? 0.88622695f : 2.8329768f);
  p = a == 1.0f ? __builtin_inff() : p;
  return a <= 1.0f ? x * p : __builtin_nanf("");
}

#define ASSAY_BY_WAY_OF_F64(name) \
  INLINE f32 name(f32 x) { return (f32)name((f64)x); }
ASSAY_BY_WAY_OF_F64(erfcx)
ASSAY_BY_WAY_OF_F64(ndtri)
ASSAY_BY_WAY_OF_F64(i0e)
ASSAY_BY_WAY_OF_F64(i1e)
ASSAY_BY_WAY_OF_F64(i0)
ASSAY_BY_WAY_OF_F64(i1)
ASSAY_BY_WAY_OF_F64(lgamma)
ASSAY_BY_WAY_OF_F64(digamma)
#undef ASSAY_BY_WAY_OF_F64
INLINE f32 zeta(f32 s, f32 q) { return (f32)zeta((f64)s, (f64)q); }

// A counter of four words becomes four random ones, in ten rounds of Philox.
INLINE void philox_rounds(u32& a, u32& b, u32& c, u32& d, i64 seed) {
  u32 key = (u32)seed, other = (u32)((u64)seed >> 32);
  for (int round = 0; round < 10; round++) {
    u64 left = (u64)a * 0xD2511F53u, right = (u64)c * 0xCD9E8D57u;
    a = (u32)(right >> 32) ^ b ^ key;
    b = (u32)right;
    c = (u32)(left >> 32) ^ d ^ other;
    d = (u32)left;
    key += 0x9E3779B9u;
    other += 0xBB67AE85u;
  }
}

// The word of an element by Philox with ten rounds, as compiler/runtime/philox.py says; in its order as i32: less 2^31.
INLINE i32 philox(i64 seed, i64 start, i64 position, i64 threads, i64 width) {
  i64 group = position / width, turn = group / threads;
  i64 drawn = turn * (width == 1 ? 1 : width < 4 ? 4 : width) + position % width, call = start + drawn / 4, lane = drawn % 4;
  u32 a = (u32)call, b = (u32)((u64)call >> 32), c = (u32)(group % threads), d = 0;
  philox_rounds(a, b, c, d, seed);
  u32 low = lane == 1 ? b : a, high = lane == 3 ? d : c;
  return (i32)((lane < 2 ? low : high) ^ 0x80000000u);
}

// The words of N elements from position `first` on, where each four elements are a thread of 2^30: out[first % 4 + k] is
// that of the k-th. A call of Philox gives four of them.
template <int N>
INLINE void philox_block(i32* out, i64 seed, i64 start, i64 first) {
#pragma omp simd
  for (i64 g = 0; g < N / 4 + 1; g++) {
    i64 group = (first >> 2) + g, call = start + (group >> 30);
    u32 a = (u32)call, b = (u32)((u64)call >> 32), c = (u32)group & 0x3FFFFFFFu, d = 0;
    philox_rounds(a, b, c, d, seed);
    out[4 * g] = (i32)(a ^ 0x80000000u);
    out[4 * g + 1] = (i32)(b ^ 0x80000000u);
    out[4 * g + 2] = (i32)(c ^ 0x80000000u);
    out[4 * g + 3] = (i32)(d ^ 0x80000000u);
  }
}

}  // namespace m

// clang-format off
#pragma omp declare reduction(maximum : f32, f64, i8, u8, i16, i32, i64 : omp_out = m::maximum(omp_in, omp_out)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(minimum : f32, f64, i8, u8, i16, i32, i64 : omp_out = m::minimum(omp_in, omp_out)) initializer(omp_priv = omp_orig)
// clang-format on
