/* The ring machine of one lane: which bytes come next on either connection. No sockets, no memory of the vectors,
 * no clock: the caller moves bytes and tells how many; so every order of events can be played in a test. */
#ifndef FASTHVD_RING_H
#define FASTHVD_RING_H
#include "protocol.h"
#include "slices.h"

#include <stdbool.h>

enum { ARRIVE_WORDS = HOSTS_MAX / 64 };

struct ring_cursor {
    uint32_t step, chunk;
};

/* A piece of the stream: `head` bytes of a frame header, or `bytes` at byte offset `offset` of the vector. */
struct ring_spans {
    void *head;
    size_t head_bytes;
    uint64_t offset;
    size_t bytes;
    bool payload_first; /* receiving: payload, then the next header; sending: header, then payload */
    bool own;           /* sending: the payload is this host's own input (step 0), else it is in the result */
};

/* What the caller must do with a whole received chunk before it goes on. */
enum ring_action_kind { ACTION_NONE, ACTION_REDUCE, ACTION_KEEP };
struct ring_action {
    enum ring_action_kind kind;
    uint64_t offset;
    size_t bytes;
};

struct ring {
    enum ring_state state;
    uint32_t host, hosts;
    struct job_key job;
    /* receiving */
    struct frame in;
    size_t in_head;    /* header bytes in `in`; a whole header of the *next* job may wait here between jobs */
    size_t in_payload; /* payload bytes still to come of the chunk at `received` */
    uint64_t in_offset;
    struct ring_cursor received; /* the chunk that is expected next */
    uint32_t arrived;            /* other hosts known to have arrived */
    uint64_t seen[ARRIVE_WORDS];
    /* sending */
    struct frame out;
    size_t out_head, out_payload; /* still to send of the frame under way */
    uint64_t out_offset;
    bool out_own;
    struct ring_cursor sent; /* the chunk that is sent next */
    uint16_t forward[HOSTS_MAX];
    uint32_t forward_first, forward_last;
    /* why it failed */
    enum cause cause;
    char text[CAUSE_BYTES];
};

void ring_init(struct ring *ring, uint32_t host, uint32_t hosts);
/* RING_IDLE -> RING_ARRIVING (or RING_FAILED if the frame that already waits is of another job). */
void ring_begin(struct ring *ring, const struct job_key *job);
/* Where the next received bytes go. False: nothing is wanted now. */
bool ring_want_receive(struct ring *ring, struct ring_spans *spans);
/* `bytes` came in, in the order of the spans; the action must be done before the next call of any kind. */
struct ring_action ring_received(struct ring *ring, size_t bytes);
/* What can be sent next. False: nothing now. */
bool ring_want_send(struct ring *ring, struct ring_spans *spans);
void ring_sent(struct ring *ring, size_t bytes);
void ring_fail(struct ring *ring, enum cause cause, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* RING_FINISHED -> RING_IDLE. */
void ring_end(struct ring *ring);
#endif
