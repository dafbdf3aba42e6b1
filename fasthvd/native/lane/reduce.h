/* acc = acc (op) in, element by element. */
#ifndef FASTHVD_REDUCE_H
#define FASTHVD_REDUCE_H
#include "../common/protocol.h"

#include <stddef.h>

void reduce(enum element_type type, enum operation op, void *acc, const void *in, size_t bytes);
#endif
