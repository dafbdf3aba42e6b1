/* The lanes of a group of ranks, without MPI: create, allreduce, close. Every rank of the group calls each function
 * at the same point. How the ranks speak to each other meanwhile is the caller's: a transport of two functions. */
#ifndef FASTHVD_LANES_H
#define FASTHVD_LANES_H
#include "../common/ipc.h"
#include "../common/protocol.h"
#include "settings.h"

#include <stdbool.h>

struct transport {
    int rank, size;
    void *context;
    /* Everybody's `bytes` bytes into `all` (size x bytes, in rank order). False: the group is broken. */
    bool (*gather)(void *context, const void *mine, size_t bytes, void *all);
    /* ballot = bitwise AND over all ranks, within the time limit. False with `why` when a rank is silent. */
    bool (*vote)(void *context, uint64_t ballot[2], int64_t timeout_ns, char why[CAUSE_BYTES]);
};

enum outcome {
    OUTCOME_DONE,     /* the result is in `recv` on every rank */
    OUTCOME_REDO,     /* failed on every rank, user memory untouched: do it another way */
    OUTCOME_MISMATCH, /* the ranks do not call the same allreduce: an error of the program */
    OUTCOME_BROKEN,   /* the ranks cannot agree any more: end the job */
};

/* What a lane told its rank last. */
struct lane_end {
    int control; /* -1: this lane is no more */
    int setup;   /* leader only: the socket it was started with */
    int pidfd;   /* leader only */
    uint32_t pid;
    bool done, failed;
    enum cause cause;
    char text[CAUSE_BYTES];
    uint64_t seen_beat, seen_bytes; /* of the board, and when they changed last */
    int64_t seen_ns;
};

/* Shares of the lanes in use; see weights.h. */
struct weights {
    uint64_t used;
    uint32_t edges[LANES_MAX + 1];
    uint64_t flow_ns[LANES_MAX]; /* of the board, at the last look */
    uint32_t large;              /* large allreduces so far */
    bool started, promising;
};

struct lanes {
    struct settings settings;
    struct transport transport;
    char host_name[NAME_BYTES];
    uint32_t hosts, host, local_ranks, local;
    uint32_t *hosts_of_ranks;
    bool leader;
    bool read_in_place; /* the lanes read this rank's memory; else it copies its input for them */
    uint8_t sample[TOKEN_BYTES];
    int started;    /* lanes per host that were started */
    uint64_t alive; /* bit i: lane i works on every host */
    int limit;      /* use at most so many */
    uint32_t number; /* of the ranks; part of every frame */
    struct lane_end ends[LANES_MAX];
    struct area input, result, board_area;
    struct lane_board *board;
    struct weights weights;
    uint64_t sequence;
    char reason[CAUSE_BYTES]; /* the last agreed reason to go on with fewer lanes */
};

/* NULL when no lane could be started on every host; `why` says what was agreed to be the reason, the same on all. */
struct lanes *lanes_create(const struct settings *settings, const struct transport *transport, char why[CAUSE_BYTES]);
enum outcome lanes_allreduce(struct lanes *lanes, const void *send, void *recv, uint64_t count, enum element_type type, enum operation op);
void lanes_close(struct lanes *lanes);
int lanes_usable(const struct lanes *lanes);
/* In a forked child: lets go of what belongs to the parent. */
void lanes_forget(struct lanes *lanes);
#endif
