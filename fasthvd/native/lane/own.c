#define _GNU_SOURCE
#include "own.h"

#include "../common/clock.h"
#include "reduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

void own_prepare(struct lane *lane, size_t bytes)
{
    if (bytes <= lane->buffer_bytes)
        return;
    free(lane->scratch);
    if (posix_memalign((void **)&lane->scratch, 4096, bytes) != 0)
        lane_fail(lane, CAUSE_SYSTEM, "no memory for %zu bytes", bytes);
    lane->buffer_bytes = bytes;
}

static void read_rank(struct lane *lane, const struct local_rank *local, uint64_t offset, size_t bytes, char *into)
{
    /* Read chunk by chunk into a buffer that stays in the cache, this is cheaper than a copy of the whole vector. */
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {into + done, bytes - done}, there = {(void *)(uintptr_t)(local->job.address + offset + done), bytes - done};
        ssize_t got = process_vm_readv(local->pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            lane_fail(lane, CAUSE_SYSTEM, "cannot read the memory of local rank %ld: %s", (long)(local - lane->locals), strerror(errno));
        done += (size_t)got;
    }
}

static const char *input(struct lane *lane, uint32_t local_rank, uint64_t offset, size_t bytes)
{
    const struct local_rank *local = &lane->locals[local_rank];
    if (local->job.address == 0)
        return local->input.at + offset;
#ifdef FASTHVD_THREADS /* benchmarks only: a thread of the rank sees its memory */
    return (const char *)(uintptr_t)(local->job.address + offset);
#endif
    read_rank(lane, local, offset, bytes, lane->scratch);
    return lane->scratch;
}

static void add_from(struct lane *lane, uint32_t first, uint64_t offset, size_t bytes)
{
    for (uint32_t i = first; i < lane->config.local_ranks; i++)
        reduce(lane->ring.job.type, lane->ring.job.op, lane->result.at + offset, input(lane, i, offset, bytes), bytes);
}

/* When this host's ranks are added up; one rank beside a ring is the ring's own sum. */
static int64_t begin_local_sum(const struct lane *lane) { return lane->config.local_ranks > 1 || lane->config.hosts == 1 ? now_ns() : 0; }

static void note_local_sum(struct lane *lane, int64_t begin, size_t bytes)
{
    struct phase_time *phase = &lane->phases[PHASE_LOCAL_SUM];
    if (begin == 0)
        return;
    if (phase->start_ns == 0)
        phase->start_ns = begin;
    phase->end_ns = now_ns();
    phase->bytes += bytes;
}

void own_stage(struct lane *lane, uint64_t offset, size_t bytes)
{
    int64_t begin = begin_local_sum(lane);
    if (lane->locals[0].job.address != 0)
        read_rank(lane, &lane->locals[0], offset, bytes, lane->result.at + offset);
    else
        memcpy(lane->result.at + offset, lane->locals[0].input.at + offset, bytes);
    add_from(lane, 1, offset, bytes);
    note_local_sum(lane, begin, bytes);
}

void own_add(struct lane *lane, uint64_t offset, size_t bytes)
{
    int64_t begin = begin_local_sum(lane);
    add_from(lane, 0, offset, bytes);
    note_local_sum(lane, begin, bytes);
}

const struct area *own_outgoing(struct lane *lane, uint64_t offset, size_t bytes)
{
    if (lane->config.local_ranks == 1 && lane->locals[0].job.address == 0)
        return &lane->locals[0].input;
    own_stage(lane, offset, bytes);
    return &lane->result;
}
