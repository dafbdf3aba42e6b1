/* One plain loop per type and operation; the compiler makes vector code of it, and on x86-64 the loader picks the
 * widest version that the processor has (the artefact itself runs on any x86-64). */
#include "reduce.h"

#include "float16.h"

#if defined(__x86_64__) && defined(__GLIBC__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((b) > (a) ? (b) : (a))

#define LOOP(name, type, wide, combine)                                                                                            \
    WIDEST static void name(void *restrict into, const void *restrict from, size_t bytes)                                         \
    {                                                                                                                              \
        type *restrict acc = into;                                                                                                 \
        const type *restrict in = from;                                                                                           \
        size_t n = bytes / sizeof(type);                                                                                           \
        for (size_t i = 0; i < n; i++)                                                                                             \
            acc[i] = (type)combine((wide)acc[i], (wide)in[i]);                                                                     \
    }

/* `wide`: signed integers are added as unsigned, where running over is defined and gives the same bits. */
#define LOOPS(name, type, wide)                                                                                                    \
    LOOP(name##_sum, type, wide, SUM) LOOP(name##_min, type, type, MIN) LOOP(name##_max, type, type, MAX) LOOP(name##_prod, type, wide, PROD)

LOOPS(int8, int8_t, unsigned)
LOOPS(uint8, uint8_t, unsigned)
LOOPS(int16, int16_t, unsigned)
LOOPS(uint16, uint16_t, unsigned)
LOOPS(int32, int32_t, uint32_t)
LOOPS(uint32, uint32_t, uint32_t)
LOOPS(int64, int64_t, uint64_t)
LOOPS(uint64, uint64_t, uint64_t)
LOOPS(float32, float, float)
LOOPS(float64, double, double)

typedef void loop(void *restrict acc, const void *restrict in, size_t bytes);
#define ROW(name) {name##_sum, name##_min, name##_max, name##_prod}

static loop *const loops[TYPES][OPERATIONS] = {
    [T_INT8] = ROW(int8),       [T_UINT8] = ROW(uint8),     [T_INT16] = ROW(int16),     [T_UINT16] = ROW(uint16),
    [T_INT32] = ROW(int32),     [T_UINT32] = ROW(uint32),   [T_INT64] = ROW(int64),     [T_UINT64] = ROW(uint64),
    [T_FLOAT16] = ROW(float16), [T_FLOAT32] = ROW(float32), [T_FLOAT64] = ROW(float64),
};

void reduce(enum element_type type, enum operation op, void *acc, const void *in, size_t bytes)
{
    loops[type][op](acc, in, bytes);
}
