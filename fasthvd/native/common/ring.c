#include "ring.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint32_t last_step(const struct ring *ring) { return 2 * (ring->hosts - 1); }

static struct range slice_at(const struct ring *ring, uint32_t segment)
{
    return slice_range(segment_range(ring->job.count, ring->hosts, segment), ring->job.share_lo, ring->job.share_hi);
}

/* Segments of step t, see protocol.h: sends h-t, receives h-t-1. `back` is t or t+1; t < 2H. */
static uint32_t segment_at(const struct ring *ring, uint32_t back)
{
    return (ring->host + 2 * ring->hosts - back) % ring->hosts;
}

static struct range chunk_at(const struct ring *ring, struct ring_cursor at, uint32_t back)
{
    return chunk_range(slice_at(ring, segment_at(ring, at.step + back)), chunk_elements(ring->job.chunk_bytes, ring->job.type), at.chunk);
}

/* Moves a cursor over steps that have no (more) chunks. */
static void settle(const struct ring *ring, struct ring_cursor *at, uint32_t back)
{
    uint64_t per_chunk = chunk_elements(ring->job.chunk_bytes, ring->job.type);
    while (at->step < last_step(ring) && at->chunk >= chunk_count(slice_at(ring, segment_at(ring, at->step + back)), per_chunk)) {
        at->step++;
        at->chunk = 0;
    }
}

void ring_init(struct ring *ring, uint32_t host, uint32_t hosts)
{
    memset(ring, 0, sizeof *ring);
    ring->host = host;
    ring->hosts = hosts;
}

void ring_fail(struct ring *ring, enum cause cause, const char *format, ...)
{
    if (ring->state == RING_FAILED)
        return; /* the first cause is the telling one */
    va_list rest;
    va_start(rest, format);
    vsnprintf(ring->text, sizeof ring->text, format, rest);
    va_end(rest);
    ring->cause = cause;
    ring->state = RING_FAILED;
}

static void finish_if_done(struct ring *ring)
{
    if (ring->state == RING_RUNNING && ring->received.step == last_step(ring) && ring->sent.step == last_step(ring) &&
        ring->out_head + ring->out_payload == 0 && ring->forward_first == ring->forward_last)
        ring->state = RING_FINISHED;
}

static void check_arrived(struct ring *ring)
{
    if (ring->state == RING_ARRIVING && ring->arrived == ring->hosts - 1)
        ring->state = RING_RUNNING;
}

static bool receiving_done(const struct ring *ring)
{
    return ring->received.step == last_step(ring) && ring->arrived == ring->hosts - 1;
}

static void take_arrive(struct ring *ring)
{
    uint32_t origin = ring->in.origin;
    if (origin >= ring->hosts || origin == ring->host || ring->seen[origin / 64] >> (origin % 64) & 1 || ring->in.bytes != 0) {
        ring_fail(ring, CAUSE_STRANGER, "the previous host sent an impossible arrival of host number %u", origin);
        return;
    }
    ring->seen[origin / 64] |= 1ull << (origin % 64);
    ring->arrived++;
    if (origin != (ring->host + 1) % ring->hosts)
        ring->forward[ring->forward_last++] = (uint16_t)origin;
    check_arrived(ring);
}

static void take_chunk(struct ring *ring)
{
    struct ring_cursor at = ring->received;
    if (at.step == last_step(ring) || ring->in.step != at.step || ring->in.chunk != at.chunk) {
        ring_fail(ring, CAUSE_STRANGER, "the previous host sent chunk %u of step %u, expected was chunk %u of step %u", ring->in.chunk,
                  ring->in.step, at.chunk, at.step);
        return;
    }
    struct range chunk = chunk_at(ring, at, 1);
    size_t width = element_bytes(ring->job.type);
    if (ring->in.bytes != (chunk.end - chunk.begin) * width) {
        ring_fail(ring, CAUSE_STRANGER, "the previous host sent a chunk of %u bytes, expected were %llu", ring->in.bytes,
                  (unsigned long long)((chunk.end - chunk.begin) * width));
        return;
    }
    ring->in_offset = chunk.begin * width;
    ring->in_payload = ring->in.bytes;
}

/* A whole header is in: is it of this job, and the one that must come next? */
static void take_head(struct ring *ring)
{
    const struct job_key *own = &ring->job, *other = &ring->in.job;
    ring->in_head = 0;
    if (ring->in.magic != FRAME_MAGIC || (ring->in.kind != FRAME_ARRIVE && ring->in.kind != FRAME_CHUNK))
        ring_fail(ring, CAUSE_STRANGER, "the previous host sent bytes that are no frame");
    else if (memcmp(own, other, sizeof *own) != 0)
        ring_fail(ring, CAUSE_MISMATCH, "allreduce %llu is %s of %llu %s (lane's share %u:%u) here, but %llu is %s of %llu %s (%u:%u) on the previous host",
                  (unsigned long long)own->sequence, operation_name(own->op), (unsigned long long)own->count, element_name(own->type),
                  own->share_lo, own->share_hi, (unsigned long long)other->sequence, operation_name(other->op),
                  (unsigned long long)other->count, element_name(other->type), other->share_lo, other->share_hi);
    else if (ring->in.kind == FRAME_ARRIVE)
        take_arrive(ring);
    else
        take_chunk(ring);
}

void ring_begin(struct ring *ring, const struct job_key *job)
{
    ring->state = RING_ARRIVING;
    ring->job = *job;
    ring->received = ring->sent = (struct ring_cursor){0, 0};
    ring->arrived = 0;
    memset(ring->seen, 0, sizeof ring->seen);
    ring->forward_first = ring->forward_last = 0;
    if (ring->hosts > 1)
        ring->forward[ring->forward_last++] = (uint16_t)ring->host;
    settle(ring, &ring->received, 1);
    settle(ring, &ring->sent, 0);
    check_arrived(ring);
    if (ring->in_head == sizeof ring->in)
        take_head(ring);
    finish_if_done(ring);
}

bool ring_want_receive(struct ring *ring, struct ring_spans *spans)
{
    if (ring->state != RING_ARRIVING && ring->state != RING_RUNNING)
        return false;
    if (ring->in_payload == 0 && receiving_done(ring))
        return false;
    *spans = (struct ring_spans){
        .head = (char *)&ring->in + ring->in_head,
        .head_bytes = sizeof ring->in - ring->in_head,
        .offset = ring->in_offset,
        .bytes = ring->in_payload,
        .payload_first = true,
    };
    return true;
}

struct ring_action ring_received(struct ring *ring, size_t bytes)
{
    struct ring_action action = {ACTION_NONE, 0, 0};
    size_t payload = bytes < ring->in_payload ? bytes : ring->in_payload;
    if (payload > 0) {
        ring->in_payload -= payload;
        ring->in_offset += payload;
        if (ring->in_payload == 0) {
            struct range chunk = chunk_at(ring, ring->received, 1);
            size_t width = element_bytes(ring->job.type);
            action.kind = ring->received.step < ring->hosts - 1 ? ACTION_REDUCE : ACTION_KEEP;
            action.offset = chunk.begin * width;
            action.bytes = (chunk.end - chunk.begin) * width;
            ring->received.chunk++;
            settle(ring, &ring->received, 1);
        }
    }
    ring->in_head += bytes - payload;
    if (ring->in_head == sizeof ring->in && !receiving_done(ring))
        take_head(ring);
    finish_if_done(ring);
    return action;
}

/* Is the chunk that this one repeats (the same chunk, received one step earlier) already in? */
static bool chunk_ready(const struct ring *ring)
{
    if (ring->sent.step == last_step(ring))
        return false;
    if (ring->sent.step == 0)
        return true;
    struct ring_cursor needs = {ring->sent.step - 1, ring->sent.chunk};
    return ring->received.step > needs.step || (ring->received.step == needs.step && ring->received.chunk > needs.chunk);
}

static void start_frame(struct ring *ring, enum frame_kind kind)
{
    ring->out = (struct frame){.magic = FRAME_MAGIC, .kind = (uint16_t)kind, .job = ring->job};
    ring->out_head = sizeof ring->out;
    ring->out_payload = 0;
    if (kind == FRAME_ARRIVE) {
        ring->out.origin = ring->forward[ring->forward_first++];
        return;
    }
    struct range chunk = chunk_at(ring, ring->sent, 0);
    size_t width = element_bytes(ring->job.type);
    ring->out.step = ring->sent.step;
    ring->out.chunk = ring->sent.chunk;
    ring->out.bytes = (uint32_t)((chunk.end - chunk.begin) * width);
    ring->out_payload = ring->out.bytes;
    ring->out_offset = chunk.begin * width;
    ring->out_own = ring->sent.step == 0;
}

bool ring_want_send(struct ring *ring, struct ring_spans *spans)
{
    if (ring->state != RING_ARRIVING && ring->state != RING_RUNNING)
        return false;
    if (ring->out_head + ring->out_payload == 0) {
        if (ring->forward_first < ring->forward_last)
            start_frame(ring, FRAME_ARRIVE);
        else if (chunk_ready(ring))
            start_frame(ring, FRAME_CHUNK);
        else
            return false;
    }
    *spans = (struct ring_spans){
        .head = (char *)&ring->out + (sizeof ring->out - ring->out_head),
        .head_bytes = ring->out_head,
        .offset = ring->out_offset,
        .bytes = ring->out_payload,
        .own = ring->out_own,
    };
    return true;
}

void ring_sent(struct ring *ring, size_t bytes)
{
    size_t head = bytes < ring->out_head ? bytes : ring->out_head;
    ring->out_head -= head;
    ring->out_payload -= bytes - head;
    ring->out_offset += bytes - head;
    if (ring->out_head + ring->out_payload == 0 && ring->out.kind == FRAME_CHUNK) {
        ring->sent.chunk++;
        settle(ring, &ring->sent, 0);
    }
    finish_if_done(ring);
}

void ring_end(struct ring *ring) { ring->state = RING_IDLE; }
