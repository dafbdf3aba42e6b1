/* The C ring machine behind plain functions, for ctypes. */
#include "ring.h"

#include <stdlib.h>

struct ring *shim_new(uint32_t host, uint32_t hosts)
{
    struct ring *ring = malloc(sizeof *ring);
    ring_init(ring, host, hosts);
    return ring;
}

void shim_free(struct ring *ring) { free(ring); }

void shim_begin(struct ring *ring, uint32_t comm, uint8_t type, uint8_t op, uint64_t sequence, uint64_t count, uint32_t lo, uint32_t hi,
                uint32_t chunk_bytes)
{
    struct job_key job = {.comm = comm, .type = type, .op = op, .sequence = sequence, .count = count, .share_lo = lo, .share_hi = hi,
                          .chunk_bytes = chunk_bytes};
    ring_begin(ring, &job);
}

static int tell(bool wanted, const struct ring_spans *spans, uint64_t out[5])
{
    out[0] = (uint64_t)(uintptr_t)spans->head;
    out[1] = spans->head_bytes;
    out[2] = spans->offset;
    out[3] = spans->bytes;
    out[4] = spans->own;
    return wanted;
}

int shim_want_receive(struct ring *ring, uint64_t out[5])
{
    struct ring_spans spans = {0};
    return tell(ring_want_receive(ring, &spans), &spans, out);
}

int shim_want_send(struct ring *ring, uint64_t out[5])
{
    struct ring_spans spans = {0};
    return tell(ring_want_send(ring, &spans), &spans, out);
}

void shim_received(struct ring *ring, uint64_t bytes, uint64_t out[3])
{
    struct ring_action action = ring_received(ring, bytes);
    out[0] = action.kind;
    out[1] = action.offset;
    out[2] = action.bytes;
}

void shim_sent(struct ring *ring, uint64_t bytes) { ring_sent(ring, bytes); }
void shim_end(struct ring *ring) { ring_end(ring); }
int shim_state(const struct ring *ring) { return ring->state; }
int shim_cause(const struct ring *ring) { return ring->cause; }
