/* IEEE half precision, two elements combined in float32 and rounded to nearest even, as Horovod's own operations do. */
#ifndef FASTHVD_FLOAT16_H
#define FASTHVD_FLOAT16_H
#include <stddef.h>

void float16_sum(void *restrict acc, const void *restrict in, size_t bytes);
void float16_min(void *restrict acc, const void *restrict in, size_t bytes);
void float16_max(void *restrict acc, const void *restrict in, size_t bytes);
void float16_prod(void *restrict acc, const void *restrict in, size_t bytes);
#endif
