/* One job from its posting to its answer. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "lane.h"
#include "own.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static void check_jobs_agree(struct lane *lane)
{
    const struct job_key *first = &lane->locals[0].job.job;
    for (uint32_t i = 1; i < lane->config.local_ranks; i++) {
        const struct job_key *other = &lane->locals[i].job.job;
        if (memcmp(first, other, sizeof *first) != 0)
            lane_fail(lane, CAUSE_MISMATCH, "allreduce %llu is %s of %llu %s on one rank of this host, but %s of %llu %s on another",
                      (unsigned long long)first->sequence, operation_name(first->op), (unsigned long long)first->count,
                      element_name(first->type), operation_name(other->op), (unsigned long long)other->count, element_name(other->type));
    }
}

static void map_areas(struct lane *lane)
{
    size_t most = 0;
    for (uint32_t i = 0; i < lane->config.local_ranks; i++) {
        struct local_rank *local = &lane->locals[i];
        if (local->job.area_bytes > most)
            most = local->job.area_bytes;
        if (local->job.address == 0 && !area_map(&local->input, local->job.area_bytes))
            lane_fail(lane, CAUSE_SYSTEM, "cannot map %llu bytes: %s", (unsigned long long)local->job.area_bytes, strerror(errno));
    }
    if (!area_map(&lane->result, lane->locals[0].job.area_bytes))
        lane_fail(lane, CAUSE_SYSTEM, "cannot map %zu bytes: %s", most, strerror(errno));
}

/* One host alone: no ring, only the local sum of this lane's slice. */
static void run_local(struct lane *lane)
{
    const struct job_key *job = &lane->ring.job;
    size_t width = element_bytes(job->type);
    struct range slice = slice_range(segment_range(job->count, 1, 0), job->share_lo, job->share_hi);
    uint64_t per_chunk = chunk_elements(job->chunk_bytes, job->type);
    for (uint32_t i = 0; i < chunk_count(slice, per_chunk); i++) {
        struct range chunk = chunk_range(slice, per_chunk, i);
        own_stage(lane, chunk.begin * width, (chunk.end - chunk.begin) * width);
    }
    __atomic_store_n(&lane->board->arrived, job->sequence, __ATOMIC_RELEASE);
}

static void note_retransmits(struct lane *lane)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (lane->next >= 0 && getsockopt(lane->next, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
        lane->board->retransmits = info.tcpi_total_retrans;
}

void lane_run_job(struct lane *lane)
{
    check_jobs_agree(lane);
    map_areas(lane);
    lane->state = LANE_RUNNING;
    int64_t begin = now_ns();
    lane->ring.job = lane->locals[0].job.job;
    memset(lane->phases, 0, sizeof lane->phases);
    own_prepare(lane, lane->ring.job.chunk_bytes);
    __atomic_store_n(&lane->board->started, lane->ring.job.sequence, __ATOMIC_RELEASE);
    if (lane->config.hosts == 1) {
        run_local(lane);
        lane->board->busy_ns += (uint64_t)(now_ns() - begin);
    } else {
        ring_begin(&lane->ring, &lane->locals[0].job.job);
        lane_run_ring(lane);
        ring_end(&lane->ring);
        note_retransmits(lane);
    }
    lane->board->jobs++;
    lane->state = LANE_IDLE;
    struct control done = {.kind = CONTROL_DONE, .job = lane->ring.job};
    memcpy(done.phases, lane->phases, sizeof done.phases);
    for (uint32_t i = 0; i < lane->config.local_ranks; i++)
        lane->locals[i].posted = false;
    for (uint32_t i = 0; i < lane->config.local_ranks; i++)
        ipc_send(lane->locals[i].control, &done, sizeof done, NULL, 0);
    for (nfds_t i = 0; i < lane->watched_count; i++)
        lane->watched[i].revents = 0;
}
