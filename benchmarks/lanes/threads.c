/* Benchmark only: the same rings as threads of the rank, to compare with processes. Stands for spawn.c and main.c.
 * A lane that fails ends its thread only; its sockets stay open until the job ends: good enough to be timed. */
#include "../../fasthvd/native/lane/lane.h"
#include "../../fasthvd/native/rank/spawn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

__thread int thread_leader_fd = -1;

void lane_fail(struct lane *lane, enum cause cause, const char *format, ...)
{
    struct control message = {.kind = CONTROL_FAILED, .cause = cause, .job.sequence = lane->ring.job.sequence};
    va_list rest;
    va_start(rest, format);
    vsnprintf(message.text, sizeof message.text, format, rest);
    va_end(rest);
    for (uint32_t i = 0; lane->locals != NULL && i < lane->config.local_ranks; i++)
        if (lane->locals[i].control >= 0)
            ipc_send(lane->locals[i].control, &message, sizeof message, NULL, 0);
    ipc_send(LEADER_FD, &message, sizeof message, NULL, 0);
    pthread_exit(NULL);
}

static void *lane_thread(void *leader)
{
    thread_leader_fd = (int)(intptr_t)leader;
    prctl(PR_SET_NAME, "fasthvd-lane");
    struct lane *lane = calloc(1, sizeof *lane);
    lane->listener = lane->previous = lane->next = lane->result.fd = lane->board_area.fd = -1;
    lane_setup(lane);
    if (lane->config.hosts > 1)
        lane_connect(lane);
    ring_init(&lane->ring, lane->config.host, lane->config.hosts);
    lane->state = LANE_IDLE;
    struct control ready = {.kind = CONTROL_READY, .pid = (uint32_t)getpid()};
    memcpy(ready.readable, lane->readable, sizeof ready.readable);
    ipc_send(LEADER_FD, &ready, sizeof ready, NULL, 0);
    lane_watch(lane);
    for (;;) {
        lane_check_owners(lane);
        if (lane_take_jobs(lane)) {
            lane_run_job(lane);
            continue;
        }
        lane->board->beat++;
        if (poll(lane->watched, lane->watched_count, -1) < 0 && errno != EINTR)
            lane_fail(lane, CAUSE_SYSTEM, "poll: %s", strerror(errno));
    }
    return NULL;
}

int spawn_lane(const char *program, int control)
{
    (void)program;
    pthread_t thread;
    int own = dup(control); /* the caller closes its own */
    int error = pthread_create(&thread, NULL, lane_thread, (void *)(intptr_t)own);
    if (error == 0)
        pthread_detach(thread);
    return error;
}
