// Scalar types and branch-free inline math of the generated kernels. No header is included: a unit compiles in ~0.1 s.
//
// Every float32 function is straight-line code over selects, so that `#pragma omp simd` turns a loop that calls it into
// vector code; the float64 ones, and the rare float32 ones at the end, are calls to libm. Accuracy in float32, measured
// by tests/test_cpp_math.py over the whole range, is at most 2 ulp: exp expm1 log log1p log2 log10 tanh sigmoid erf sin
// cos exp2 pow. The polynomials are least-maximum fits on the stated intervals. NaN, infinities, signed zeros and
// subnormal results are those of libm.
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

// ---- conversions ----

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

template <class T>
INLINE T maximum(T a, T b) {
  return (a > b) | (a != a) ? a : b;
}
template <class T>
INLINE T minimum(T a, T b) {
  return (a < b) | (a != a) ? a : b;
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
INLINE f64 hypot(f64 a, f64 b) { return __builtin_hypot(a, b); }

// ---- division that rounds down ----

INLINE f32 fmod(f32 a, f32 b) { return __builtin_fmodf(a, b); }
INLINE f64 fmod(f64 a, f64 b) { return __builtin_fmod(a, b); }

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
  return (T)((r != 0) & ((r < 0) != (b < 0)) ? r + b : r);
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

INLINE f32 exp(f32 x) {
  f32 c = x < -105.0f ? -105.0f : x;
  c = c > 89.0f ? 89.0f : c;
  f32 n, e = reduced_expm1(c, n);
  i32 k = (i32)n, half = k >> 1;
  return (1.0f + e) * power_of_two(half) * power_of_two(k - half);  // in two steps: n is -152..129
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

// With e = exp(-|x|): 1/(1 + e), or e/(1 + e) left of zero, and one Newton step that gives back what rounding took.
INLINE f32 sigmoid(f32 x) {
  f32 a = abs(x);
  f32 n, t = reduced_expm1(a > 105.0f ? -105.0f : -a, n);
  i32 k = (i32)n, half = k >> 1;
  f32 scale = power_of_two(half), rest = power_of_two(k - half);
  f32 sum = 1.0f + t;
  f32 e = sum * scale * rest, e_low = (t - (sum - 1.0f)) * scale * rest;
  f32 d = 1.0f + e, d_low = e - (d - 1.0f) + e_low;
  bool left = signbit(x);
  f32 inverse = 1.0f / d;
  f32 value = (left ? e : 1.0f) * inverse;
  f32 lost = mad(-value, d, left ? e : 1.0f) + (left ? e_low : 0.0f);
  return mad(mad(-value, d_low, lost), inverse, value);
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

INLINE f32 log(f32 x) {
  f32 scaled = x < 0x1p-126f ? x * 0x1p23f : x;
  i32 u = bits<i32>(scaled) - 0x3f3504f3;
  f32 e = (f32)((u >> 23) - (x < 0x1p-126f ? 23 : 0));
  f32 f = bits<f32>((u & 0x7fffff) + 0x3f3504f3) - 1.0f;
  f32 p = -0x1.41ed50p-4f;
  p = mad(p, f, 0x1.07d0ccp-3f);
  p = mad(p, f, -0x1.0ce08ep-3f);
  p = mad(p, f, 0x1.226e50p-3f);
  p = mad(p, f, -0x1.54788ap-3f);
  p = mad(p, f, 0x1.99a596p-3f);
  p = mad(p, f, -0x1.000220p-2f);
  p = mad(p, f, 0x1.55554ap-2f);
  f32 t = mad(f * f, mad(f, p, -0.5f), e * -0x1.bd0106p-13f);
  f32 result = mad(e, 0x1.63p-1f, f + t);
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? -__builtin_inff() : result;
  return x >= 0.0f ? result : __builtin_nanf("");
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
  f64 t = x < -200.0f ? -200.0f : x;
  return (f32)exp2_inside(t > 200.0 ? 200.0 : t);
}

INLINE f32 log_scaled(f32 x, f64 scale) {
  f32 result = (f32)(log_inside((f64)x) * scale);
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? -__builtin_inff() : result;
  return x >= 0.0f ? result : __builtin_nanf("");
}
INLINE f32 log2(f32 x) { return log_scaled(x, 1.4426950408889634); }
INLINE f32 log10(f32 x) { return log_scaled(x, 0.43429448190325182); }

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
  i32 e = (bits<i32>(x) >> 23) & 255;  // signed: gcc gathers with no other index
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

INLINE f32 sin(f32 x) {
  i32 quadrant;
  f64 r = reduce_quadrant(x, quadrant);
  f32 value = sin_of_quadrant(r, quadrant, x);
  return x == 0.0f ? x : value;
}

INLINE f32 cos(f32 x) {
  i32 quadrant;
  f64 r = reduce_quadrant(x, quadrant);
  return sin_of_quadrant(r, quadrant + 1, x);
}

// ---- float64, and what is rare in float32: libm ----

INLINE f64 exp(f64 x) { return __builtin_exp(x); }
INLINE f64 exp2(f64 x) { return __builtin_exp2(x); }
INLINE f64 expm1(f64 x) { return __builtin_expm1(x); }
INLINE f64 log(f64 x) { return __builtin_log(x); }
INLINE f64 log2(f64 x) { return __builtin_log2(x); }
INLINE f64 log10(f64 x) { return __builtin_log10(x); }
INLINE f64 log1p(f64 x) { return __builtin_log1p(x); }
INLINE f64 sin(f64 x) { return __builtin_sin(x); }
INLINE f64 cos(f64 x) { return __builtin_cos(x); }
INLINE f64 tanh(f64 x) { return __builtin_tanh(x); }
INLINE f64 erf(f64 x) { return __builtin_erf(x); }
INLINE f64 pow(f64 x, f64 y) { return __builtin_pow(x, y); }
INLINE f64 sigmoid(f64 x) { return 1.0 / (1.0 + __builtin_exp(-x)); }
#define ASSAY_LIBM(name)                                        \
  INLINE f32 name(f32 x) { return __builtin_##name##f(x); } \
  INLINE f64 name(f64 x) { return __builtin_##name(x); }
ASSAY_LIBM(tan)
ASSAY_LIBM(asin)
ASSAY_LIBM(acos)
ASSAY_LIBM(atan)
ASSAY_LIBM(sinh)
ASSAY_LIBM(cosh)
ASSAY_LIBM(asinh)
ASSAY_LIBM(acosh)
ASSAY_LIBM(atanh)
ASSAY_LIBM(erfc)
#undef ASSAY_LIBM
INLINE f32 atan2(f32 y, f32 x) { return __builtin_atan2f(y, x); }
INLINE f64 atan2(f64 y, f64 x) { return __builtin_atan2(y, x); }

}  // namespace m

// clang-format off
#pragma omp declare reduction(maximum : f32, f64, i8, u8, i16, i32, i64 : omp_out = m::maximum(omp_in, omp_out)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(minimum : f32, f64, i8, u8, i16, i32, i64 : omp_out = m::minimum(omp_in, omp_out)) initializer(omp_priv = omp_orig)
// clang-format on
