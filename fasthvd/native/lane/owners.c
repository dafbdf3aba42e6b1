/* The lane's owners: the local ranks. It does what they post and ends when one of them is gone. */
#define _GNU_SOURCE
#include "lane.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void lane_watch(struct lane *lane)
{
    uint32_t locals = lane->config.local_ranks;
    /* On the ring only the end of a connection matters while idle: early frames of a faster host wait in the socket. */
    lane->watched[WATCH_PREVIOUS] = (struct pollfd){.fd = lane->previous, .events = POLLRDHUP};
    lane->watched[WATCH_NEXT] = (struct pollfd){.fd = lane->next, .events = POLLRDHUP};
    lane->watched[WATCH_LEADER] = (struct pollfd){.fd = LEADER_FD, .events = POLLIN};
    for (uint32_t i = 0; i < locals; i++) {
        lane->watched[WATCH_LOCALS + i] = (struct pollfd){.fd = lane->locals[i].control, .events = POLLIN};
        lane->watched[WATCH_LOCALS + locals + i] = (struct pollfd){.fd = lane->locals[i].pidfd, .events = POLLIN};
    }
    lane->watched_count = WATCH_LOCALS + 2 * locals;
}

static void leave_quietly(void) { _exit(0); }

static void take_message(struct lane *lane, struct local_rank *local)
{
    struct control message;
    ssize_t got = recv(local->control, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        leave_quietly();
    if (got != sizeof message || message.kind != CONTROL_JOB || local->posted)
        lane_fail(lane, CAUSE_SYSTEM, "a local rank posted something unexpected (%zd bytes, kind %u)", got, message.kind);
    local->posted = true;
    local->job = message;
    lane->state = LANE_GATHERING;
}

void lane_check_owners(struct lane *lane)
{
    uint32_t locals = lane->config.local_ranks;
    const short gone = POLLRDHUP | POLLHUP | POLLERR;
    for (uint32_t i = 0; i < locals; i++) {
        if (lane->watched[WATCH_LOCALS + locals + i].revents != 0)
            leave_quietly();
        if (lane->watched[WATCH_LOCALS + i].revents != 0)
            take_message(lane, &lane->locals[i]);
    }
    if (lane->watched[WATCH_LEADER].revents != 0)
        leave_quietly(); /* after CONFIG and ATTACH the leader says nothing more: this is its end */
    if (lane->state == LANE_RUNNING)
        return; /* the ring's own reads and writes see its end */
    if (lane->watched[WATCH_PREVIOUS].revents & gone)
        lane_fail(lane, CAUSE_FLOW_CLOSED, "host %s closed the connection", lane->config.previous_name);
    if (lane->watched[WATCH_NEXT].revents & gone)
        lane_fail(lane, CAUSE_FLOW_CLOSED, "host %s closed the connection", lane->config.next_name);
}

bool lane_take_jobs(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->config.local_ranks; i++)
        if (!lane->locals[i].posted)
            return false;
    return true;
}
