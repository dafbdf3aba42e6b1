/* One lane: a process that sums its slice with its ring. See common/protocol.h. */
#ifndef FASTHVD_LANE_H
#define FASTHVD_LANE_H
#include "../common/ipc.h"
#include "../common/protocol.h"
#include "../common/ring.h"

#include <poll.h>

enum { CONFIG_FDS = 3, OWNED_FDS_FROM = 4 };

struct local_rank {
    int control;
    int pidfd; /* -1 where the kernel has none */
    pid_t pid;
    struct area input; /* where its input was copied to, if it was */
    bool posted;
    struct control job;
};

struct lane {
    enum lane_state state;
    struct lane_config config;
    int listener, previous, next;
    struct area result, board_area;
    struct lane_board *board;
    struct local_rank *locals;
    uint64_t readable[LOCAL_MAX / 64]; /* local ranks whose memory may be read */
    struct ring ring;
    struct phase_time phases[PHASES]; /* of the job under way */
    /* this host's own elements on their way: see own.h */
    char *scratch;
    size_t buffer_bytes;
    /* poll set: previous, next, leader, controls, pidfds */
    struct pollfd *watched;
    nfds_t watched_count;
};

enum { WATCH_PREVIOUS, WATCH_NEXT, WATCH_LEADER, WATCH_LOCALS };

/* setup.c: reads CONFIG and ATTACH from the leader. */
void lane_setup(struct lane *lane);
/* handshake.c: makes the two ring connections. */
void lane_connect(struct lane *lane);
/* owners.c: leaves when an owner is gone; takes posted jobs. True when all local ranks have posted. */
void lane_watch(struct lane *lane);
void lane_check_owners(struct lane *lane);
bool lane_take_jobs(struct lane *lane);
/* flow.c: runs one job on the ring. */
void lane_run_ring(struct lane *lane);
/* work.c: runs a whole job and answers it. */
void lane_run_job(struct lane *lane);
/* Tells all owners why, then ends the process (its closed connections tell the neighbours). */
_Noreturn void lane_fail(struct lane *lane, enum cause cause, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
