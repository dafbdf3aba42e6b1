#include "float16.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum combine { SUM, MIN, MAX, PROD };

static float widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023, bits;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 1u << 22 : 0);
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else { /* zero or subnormal: fraction * 2^-24 is exact */
        value = (float)fraction * 0x1p-24f;
        memcpy(&bits, &value, 4);
        bits |= sign;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000u) { /* below 2^-14: the float adder rounds at 2^-24 */
        float small;
        memcpy(&small, &bits, 4);
        small += 0.5f;
        memcpy(&bits, &small, 4);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    return (uint16_t)(sign | (bits - 0x38000000u + 0xfff + (bits >> 13 & 1)) >> 13);
}

static float combine(enum combine how, float a, float b)
{
    switch (how) {
    case SUM:
        return a + b;
    case MIN:
        return b < a ? b : a;
    case MAX:
        return b > a ? b : a;
    default:
        return a * b;
    }
}

static void plain(enum combine how, uint16_t *acc, const uint16_t *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = narrow(combine(how, widen(acc[i]), widen(in[i])));
}

#if defined(__x86_64__)
/* Compare-and-blend, not min_ps: the scalar rule above decides for NaN and signed zero too. */
__attribute__((target("avx,f16c"))) static __m256 combine8(enum combine how, __m256 a, __m256 b)
{
    switch (how) {
    case SUM:
        return _mm256_add_ps(a, b);
    case MIN:
        return _mm256_blendv_ps(a, b, _mm256_cmp_ps(b, a, _CMP_LT_OQ));
    case MAX:
        return _mm256_blendv_ps(a, b, _mm256_cmp_ps(b, a, _CMP_GT_OQ));
    default:
        return _mm256_mul_ps(a, b);
    }
}

__attribute__((target("avx,f16c"))) static size_t vector(enum combine how, uint16_t *acc, const uint16_t *in, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(acc + i)));
        __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i)));
        _mm_storeu_si128((__m128i *)(acc + i), _mm256_cvtps_ph(combine8(how, a, b), _MM_FROUND_TO_NEAREST_INT));
    }
    return i;
}
#endif

static void run(enum combine how, void *into, const void *from, size_t bytes)
{
    uint16_t *acc = into;
    const uint16_t *in = from;
    size_t n = bytes / 2, done = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"))
        done = vector(how, acc, in, n);
#endif
    plain(how, acc + done, in + done, n - done);
}

void float16_sum(void *restrict acc, const void *restrict in, size_t bytes) { run(SUM, acc, in, bytes); }
void float16_min(void *restrict acc, const void *restrict in, size_t bytes) { run(MIN, acc, in, bytes); }
void float16_max(void *restrict acc, const void *restrict in, size_t bytes) { run(MAX, acc, in, bytes); }
void float16_prod(void *restrict acc, const void *restrict in, size_t bytes) { run(PROD, acc, in, bytes); }
