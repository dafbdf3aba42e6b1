/* Which elements a host, a lane, a chunk has. Depends on count, hosts and shares only. */
#ifndef FASTHVD_SLICES_H
#define FASTHVD_SLICES_H
#include "protocol.h"

#include <stddef.h>

struct range {
    uint64_t begin, end; /* elements */
};

size_t element_bytes(enum element_type type);
const char *element_name(uint8_t type);
const char *operation_name(uint8_t op);
/* Segment `segment` of `hosts`: the unit in which the ring decides who adds what in which order. */
struct range segment_range(uint64_t count, uint32_t hosts, uint32_t segment);
/* The part of a segment with share [lo, hi) of 65536; shares that touch give ranges that touch. */
struct range slice_range(struct range segment, uint32_t share_lo, uint32_t share_hi);
/* Elements of one chunk (at least one) and the number of chunks of a slice. */
uint64_t chunk_elements(uint32_t chunk_bytes, enum element_type type);
uint32_t chunk_count(struct range slice, uint64_t elements_per_chunk);
struct range chunk_range(struct range slice, uint64_t elements_per_chunk, uint32_t chunk);
#endif
