/* fasthvd-lane: started by a leader rank with its control socket on descriptor 3. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "lane.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void lane_fail(struct lane *lane, enum cause cause, const char *format, ...)
{
    struct control message = {.kind = CONTROL_FAILED, .cause = cause, .job.sequence = lane->ring.job.sequence};
    va_list rest;
    va_start(rest, format);
    vsnprintf(message.text, sizeof message.text, format, rest);
    va_end(rest);
    lane->state = LANE_FAILED;
    for (uint32_t i = 0; lane->locals != NULL && i < lane->config.local_ranks; i++)
        if (lane->locals[i].control >= 0)
            ipc_send(lane->locals[i].control, &message, sizeof message, NULL, 0);
    ipc_send(LEADER_FD, &message, sizeof message, NULL, 0);
    _exit(0);
}

static void become_own_process(void)
{
    /* The one that the rank started ends at once, so the rank never has a child to wait for. */
    pid_t child = fork();
    if (child != 0)
        _exit(child < 0 ? 1 : 0);
    setsid();
    prctl(PR_SET_NAME, "fasthvd-lane");
    if (chdir("/") != 0)
        _exit(1);
}

static void close_foreign_descriptors(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, OWNED_FDS_FROM, ~0u, 0) == 0)
        return;
#endif
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = OWNED_FDS_FROM; fd < (most > 0 ? most : 65536); fd++)
        close(fd);
}

static void use_all_cores_of_the_job(void)
{
    /* Ranks are often bound to one core each; a lane on the same core would take it from the training. The kernel
     * cuts this down to the cpuset of the container or batch job. */
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
}

int main(int argc, char **argv)
{
    (void)argv;
    int type = 0;
    socklen_t length = sizeof type;
    if (argc != 1 || getsockopt(LEADER_FD, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET) {
        fputs("fasthvd-lane: lanes are started by 'vsketchdlc run --aux K -- ...', not by hand\n", stderr);
        return 2;
    }
    become_own_process();
    close_foreign_descriptors();
    static struct lane lane = {.listener = -1, .previous = -1, .next = -1, .result.fd = -1, .board_area.fd = -1};
    lane_setup(&lane);
    if (!lane.config.pinned)
        use_all_cores_of_the_job();
    if (lane.config.hosts > 1)
        lane_connect(&lane);
    ring_init(&lane.ring, lane.config.host, lane.config.hosts);
    lane.state = LANE_IDLE;
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct control ready = {.kind = CONTROL_READY, .pid = (uint32_t)getpid()};
    memcpy(ready.readable, lane.readable, sizeof ready.readable);
    ipc_send(LEADER_FD, &ready, sizeof ready, &self, self >= 0 ? 1 : 0);
    if (self >= 0)
        close(self);
    lane_watch(&lane);
    for (;;) {
        lane_check_owners(&lane);
        if (lane_take_jobs(&lane)) {
            lane_run_job(&lane);
            continue;
        }
        lane.board->beat++;
        int wait_ms = lane.state == LANE_GATHERING ? (int)(lane.config.beat_ns / NS_PER_MS) : -1;
        if (poll(lane.watched, lane.watched_count, wait_ms) < 0 && errno != EINTR)
            lane_fail(&lane, CAUSE_SYSTEM, "poll: %s", strerror(errno));
    }
}
