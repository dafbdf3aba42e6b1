/* Moves the ring machine's bytes: non-blocking sockets, poll() when neither can go on, never a spin. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "lane.h"
#include "own.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { SPLICE_BYTES = 16 << 10 }; /* smaller payloads are copied: one call less */

struct flow {
    bool in_blocked, out_blocked; /* the socket had nothing more, or took no more */
    const struct area *from;      /* the memory of the frame that is being sent */
    int64_t last_move, begin, arrived, reduced, next_warning, waited;
    uint64_t received_before, received_reduced; /* of the board: when it began, when the reduce-scatter was done */
};

static bool receive_some(struct lane *lane, struct flow *flow)
{
    struct ring_spans spans;
    if (flow->in_blocked || !ring_want_receive(&lane->ring, &spans))
        return false;
    struct iovec parts[2] = {{lane->result.at + spans.offset, spans.bytes}, {spans.head, spans.head_bytes}};
    int skip = spans.bytes == 0;
    struct msghdr message = {.msg_iov = parts + skip, .msg_iovlen = 2 - (size_t)skip};
    ssize_t got = recvmsg(lane->previous, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        flow->in_blocked = errno == EAGAIN;
        return false;
    }
    if (got == 0)
        lane_fail(lane, CAUSE_FLOW_CLOSED, "host %s closed the connection", lane->config.previous_name);
    if (got < 0)
        lane_fail(lane, CAUSE_FLOW_CLOSED, "receiving from host %s: %s", lane->config.previous_name, strerror(errno));
    flow->in_blocked = (size_t)got < spans.bytes + spans.head_bytes;
    lane->board->bytes_received += (uint64_t)got;
    struct ring_action action = ring_received(&lane->ring, (size_t)got);
    if (action.kind == ACTION_REDUCE)
        own_add(lane, action.offset, action.bytes);
    return true;
}

/* The payload lies in memory that has a descriptor: its pages go into the connection as they are, without a copy. They
 * may be written again only when the next host has taken them, and they are: what is written to a chunk's place is made
 * of what that host has received, or belongs to a job that begins after all hosts have ended this one. */
static ssize_t send_payload(struct lane *lane, const struct area *from, const struct ring_spans *spans)
{
    if (spans->bytes < SPLICE_BYTES)
        return send(lane->next, from->at + spans->offset, spans->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    off_t at = (off_t)spans->offset;
    return sendfile(lane->next, from->fd, &at, spans->bytes);
}

static ssize_t send_head(struct lane *lane, const struct area *from, const struct ring_spans *spans)
{
    struct iovec parts[2] = {{spans->head, spans->head_bytes}, {from->at + spans->offset, spans->bytes}};
    bool more = spans->bytes >= SPLICE_BYTES;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = more || spans->bytes == 0 ? 1 : 2};
    return sendmsg(lane->next, &message, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}

static bool send_some(struct lane *lane, struct flow *flow)
{
    struct ring_spans spans;
    if (flow->out_blocked || !ring_want_send(&lane->ring, &spans))
        return false;
    if (spans.head_bytes == sizeof(struct frame)) /* the first byte of a frame */
        flow->from = spans.own && spans.bytes > 0 ? own_outgoing(lane, spans.offset, spans.bytes) : &lane->result;
    ssize_t sent = spans.head_bytes > 0 ? send_head(lane, flow->from, &spans) : send_payload(lane, flow->from, &spans);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) {
        flow->out_blocked = errno != EINTR;
        return false;
    }
    if (sent < 0)
        lane_fail(lane, CAUSE_FLOW_CLOSED, "sending to host %s: %s", lane->config.next_name, strerror(errno));
    lane->board->bytes_sent += (uint64_t)sent;
    ring_sent(&lane->ring, (size_t)sent);
    return true;
}

static void warn_late_host(struct lane *lane, struct flow *flow, int64_t now)
{
    struct control message = {.kind = CONTROL_WARN, .job = lane->ring.job};
    snprintf(message.text, sizeof message.text, "allreduce %llu has waited %lld s for a host to arrive (%u of %u other hosts are there)",
             (unsigned long long)lane->ring.job.sequence, (long long)((now - flow->begin) / NS_PER_S), lane->ring.arrived,
             lane->config.hosts - 1);
    ipc_send(lane->locals[0].control, &message, sizeof message, NULL, 0);
    flow->next_warning = now + lane->config.stall_ns;
}

static void check_time(struct lane *lane, struct flow *flow, bool in, bool out)
{
    int64_t now = now_ns();
    if (lane->ring.state == RING_ARRIVING) {
        if (now >= flow->next_warning)
            warn_late_host(lane, flow, now);
        return;
    }
    int64_t since = flow->last_move > flow->arrived ? flow->last_move : flow->arrived;
    if (now - since < lane->config.flow_ns)
        return;
    double seconds = (double)(now - since) / NS_PER_S;
    if (in)
        lane_fail(lane, CAUSE_SILENT, "no byte from host %s for %.1f s", lane->config.previous_name, seconds);
    if (out)
        lane_fail(lane, CAUSE_SILENT, "host %s took no byte for %.1f s", lane->config.next_name, seconds);
}

static void note_arrival(struct lane *lane, struct flow *flow)
{
    if (flow->arrived != 0 || lane->ring.state == RING_ARRIVING)
        return;
    flow->arrived = now_ns();
    __atomic_store_n(&lane->board->arrived, lane->ring.job.sequence, __ATOMIC_RELEASE);
}

static void note_reduced(struct lane *lane, struct flow *flow)
{
    if (flow->reduced != 0 || lane->ring.received.step < lane->config.hosts - 1)
        return;
    flow->reduced = now_ns();
    flow->received_reduced = lane->board->bytes_received;
}

static void keep_phases(struct lane *lane, const struct flow *flow, int64_t end)
{
    lane->phases[PHASE_REDUCE_SCATTER] =
        (struct phase_time){flow->arrived, flow->reduced, flow->received_reduced - flow->received_before};
    lane->phases[PHASE_ALLGATHER] = (struct phase_time){flow->reduced, end, lane->board->bytes_received - flow->received_reduced};
}

static void wait_for_ring(struct lane *lane, struct flow *flow)
{
    struct ring_spans spans;
    bool in = ring_want_receive(&lane->ring, &spans), out = ring_want_send(&lane->ring, &spans);
    lane->watched[WATCH_PREVIOUS].fd = in ? lane->previous : -1; /* all that was wanted of it is in */
    lane->watched[WATCH_PREVIOUS].events = POLLIN;
    lane->watched[WATCH_NEXT].events = POLLRDHUP | (out ? POLLOUT : 0);
    int64_t before = now_ns();
    int64_t deadline = lane->ring.state == RING_ARRIVING ? flow->next_warning
                                                         : (flow->last_move > flow->arrived ? flow->last_move : flow->arrived) + lane->config.flow_ns;
    if (deadline > before + lane->config.beat_ns)
        deadline = before + lane->config.beat_ns;
    int ready = poll(lane->watched, lane->watched_count, ms_until(deadline));
    lane->board->beat++;
    flow->waited += now_ns() - before;
    if (ready < 0 && errno != EINTR)
        lane_fail(lane, CAUSE_SYSTEM, "poll: %s", strerror(errno));
    if (ready < 0)
        return;
    lane_check_owners(lane);
    if (lane->watched[WATCH_PREVIOUS].revents != 0)
        flow->in_blocked = false;
    if (lane->watched[WATCH_NEXT].revents != 0)
        flow->out_blocked = false;
    if (lane->watched[WATCH_NEXT].revents & (POLLERR | POLLHUP | POLLRDHUP))
        lane_fail(lane, CAUSE_FLOW_CLOSED, "host %s closed the connection", lane->config.next_name);
    if (ready == 0)
        check_time(lane, flow, in, out);
}

void lane_run_ring(struct lane *lane)
{
    struct flow flow = {.begin = now_ns(), .received_before = lane->board->bytes_received};
    flow.last_move = flow.begin;
    flow.next_warning = flow.begin + lane->config.stall_ns;
    while (lane->ring.state == RING_ARRIVING || lane->ring.state == RING_RUNNING) {
        bool moved = receive_some(lane, &flow);
        moved |= send_some(lane, &flow);
        note_arrival(lane, &flow);
        note_reduced(lane, &flow);
        if (moved)
            flow.last_move = 0; /* looked up only when it matters, before the next wait */
        else if (lane->ring.state == RING_ARRIVING || lane->ring.state == RING_RUNNING) {
            if (flow.last_move == 0)
                flow.last_move = now_ns();
            wait_for_ring(lane, &flow);
        }
    }
    if (lane->ring.state == RING_FAILED)
        lane_fail(lane, lane->ring.cause, "%s", lane->ring.text);
    lane->watched[WATCH_PREVIOUS].fd = lane->previous;
    lane->watched[WATCH_PREVIOUS].events = lane->watched[WATCH_NEXT].events = POLLRDHUP;
    int64_t end = now_ns();
    lane->board->wait_ns += (uint64_t)flow.waited;
    lane->board->busy_ns += (uint64_t)(end - flow.begin - flow.waited);
    lane->board->flow_ns += (uint64_t)(end - flow.arrived);
    keep_phases(lane, &flow, end);
}
