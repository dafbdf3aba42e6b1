/* The two ring connections: to the next host, from the previous one; both sides prove the session token. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "../common/siphash.h"
#include "lane.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUESTS_MAX = 16, GUEST_SECONDS = 5 };
enum stage { STAGE_CONNECTING, STAGE_HELLO, STAGE_CHALLENGE, STAGE_PROOF, STAGE_JOINED };

/* One connection whose handshake is under way. */
struct guest {
    int fd;
    enum stage stage; /* what it waits for */
    struct hello in;
    size_t have;
    uint64_t nonce_connecting, nonce_accepting;
    int64_t deadline;
};

static uint64_t proof(const struct lane *lane, enum hello_kind kind, uint32_t from_host, const struct guest *guest)
{
    struct {
        uint32_t kind, lane, from_host, hosts;
        uint64_t nonce_connecting, nonce_accepting;
    } said = {kind, lane->config.lane, from_host, lane->config.hosts, guest->nonce_connecting, guest->nonce_accepting};
    return siphash(lane->config.token, &said, sizeof said);
}

static bool say(struct lane *lane, const struct guest *guest, enum hello_kind kind, uint32_t from_host, uint64_t nonce)
{
    struct hello out = {.magic = HELLO_MAGIC, .protocol = FASTHVD_PROTOCOL, .kind = kind, .lane = (uint16_t)lane->config.lane,
                        .from_host = (uint16_t)from_host, .hosts = (uint16_t)lane->config.hosts, .nonce = nonce};
    if (kind != HELLO)
        out.mac = proof(lane, kind, from_host, guest);
    return send(guest->fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof out;
}

enum heard { HEARD_CLOSED = -2, HEARD_STRANGER, HEARD_PART, HEARD_ALL };

static enum heard hear(const struct lane *lane, struct guest *guest, enum hello_kind kind, uint32_t from_host)
{
    ssize_t got = recv(guest->fd, (char *)&guest->in + guest->have, sizeof guest->in - guest->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return HEARD_PART;
    if (got <= 0)
        return HEARD_CLOSED;
    guest->have += (size_t)got;
    if (guest->have < sizeof guest->in)
        return HEARD_PART;
    guest->have = 0;
    const struct hello *in = &guest->in;
    return in->magic == HELLO_MAGIC && in->protocol == FASTHVD_PROTOCOL && in->kind == kind && in->lane == lane->config.lane &&
                   in->from_host == from_host && in->hosts == lane->config.hosts
               ? HEARD_ALL
               : HEARD_STRANGER;
}

static uint64_t fresh_nonce(struct lane *lane)
{
    uint64_t nonce;
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        lane_fail(lane, CAUSE_SYSTEM, "no random numbers: %s", strerror(errno));
    return nonce;
}

static void tune_socket(const struct lane *lane, int fd)
{
    int on = 1, seconds = (int)(lane->config.flow_ns / NS_PER_S) + 1, idle = seconds > 15 ? 15 : seconds, probes = 4;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* A dead link is found even when nothing is under way. Not TCP_USER_TIMEOUT: it would also cut a flow whose
     * receiver is merely late and has its window full. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static socklen_t address_length(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void start_connecting(struct lane *lane, struct guest *out)
{
    const struct sockaddr_storage *to = &lane->config.next_address;
    out->fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out->fd < 0)
        lane_fail(lane, CAUSE_SYSTEM, "socket: %s", strerror(errno));
    tune_socket(lane, out->fd);
    struct sockaddr_storage from = lane->config.own_address;
    if (from.ss_family == AF_INET)
        ((struct sockaddr_in *)&from)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&from)->sin6_port = 0;
    int on = 1;
#ifdef IP_BIND_ADDRESS_NO_PORT
    setsockopt(out->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
#endif
    if (from.ss_family == to->ss_family && bind(out->fd, (struct sockaddr *)&from, address_length(&from)) != 0)
        lane_fail(lane, CAUSE_SYSTEM, "bind to this host's own address: %s", strerror(errno));
    if (connect(out->fd, (const struct sockaddr *)to, address_length(to)) != 0 && errno != EINPROGRESS)
        lane_fail(lane, CAUSE_HANDSHAKE, "cannot connect to host %s: %s", lane->config.next_name, strerror(errno));
    out->stage = STAGE_CONNECTING;
}

static void advance_outgoing(struct lane *lane, struct guest *out)
{
    if (out->stage == STAGE_CONNECTING) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(out->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error != 0)
            lane_fail(lane, CAUSE_HANDSHAKE, "cannot connect to host %s: %s (is a firewall between? see --ports and --iface)",
                      lane->config.next_name, strerror(error));
        out->nonce_connecting = fresh_nonce(lane);
        if (!say(lane, out, HELLO, lane->config.host, out->nonce_connecting))
            lane_fail(lane, CAUSE_HANDSHAKE, "host %s closed the connection in the handshake", lane->config.next_name);
        out->stage = STAGE_CHALLENGE;
        return;
    }
    enum heard heard = hear(lane, out, CHALLENGE, lane->config.host);
    if (heard == HEARD_PART)
        return;
    if (heard == HEARD_CLOSED) /* its lane has failed, most likely, and knows better why: the weakest cause */
        lane_fail(lane, CAUSE_FLOW_CLOSED, "host %s closed the connection in the handshake", lane->config.next_name);
    out->nonce_accepting = out->in.nonce;
    if (heard == HEARD_STRANGER || out->in.mac != proof(lane, CHALLENGE, lane->config.host, out))
        lane_fail(lane, CAUSE_STRANGER, "the port of host %s is answered by something that is not a lane of this job", lane->config.next_name);
    if (!say(lane, out, PROOF, lane->config.host, out->nonce_accepting))
        lane_fail(lane, CAUSE_HANDSHAKE, "host %s closed the connection in the handshake", lane->config.next_name);
    out->stage = STAGE_JOINED;
    lane->next = out->fd;
}

static void dismiss(struct guest *guest)
{
    close(guest->fd);
    guest->fd = -1;
}

static void advance_incoming(struct lane *lane, struct guest *guest)
{
    uint32_t from = (lane->config.host + lane->config.hosts - 1) % lane->config.hosts;
    enum hello_kind wanted = guest->stage == STAGE_HELLO ? HELLO : PROOF;
    enum heard heard = hear(lane, guest, wanted, from);
    if (heard == HEARD_PART)
        return;
    if (heard != HEARD_ALL) {
        dismiss(guest); /* a stranger: closed, and the listener goes on waiting for the real one */
    } else if (wanted == HELLO) {
        guest->nonce_connecting = guest->in.nonce;
        guest->nonce_accepting = fresh_nonce(lane);
        guest->stage = STAGE_PROOF;
        if (!say(lane, guest, CHALLENGE, from, guest->nonce_accepting))
            dismiss(guest);
    } else if (guest->in.mac != proof(lane, PROOF, from, guest)) {
        dismiss(guest);
    } else {
        tune_socket(lane, guest->fd);
        lane->previous = guest->fd;
        guest->fd = -1;
    }
}

static void accept_guest(struct lane *lane, struct guest guests[GUESTS_MAX])
{
    int fd = accept4(lane->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    int64_t now = now_ns();
    struct guest *place = NULL;
    for (int i = 0; i < GUESTS_MAX; i++)
        if (guests[i].fd < 0 || guests[i].deadline < now || (i == GUESTS_MAX - 1 && place == NULL))
            place = &guests[i];
    if (place->fd >= 0)
        dismiss(place);
    *place = (struct guest){.fd = fd, .stage = STAGE_HELLO, .deadline = now + GUEST_SECONDS * NS_PER_S};
}

static void wait_once(struct lane *lane, struct guest *out, struct guest guests[GUESTS_MAX], int64_t deadline)
{
    struct pollfd set[GUESTS_MAX + 3];
    nfds_t n = GUESTS_MAX + 3;
    for (int i = 0; i < GUESTS_MAX; i++)
        set[i] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
    set[GUESTS_MAX] = (struct pollfd){.fd = lane->previous < 0 ? lane->listener : -1, .events = POLLIN};
    set[GUESTS_MAX + 1] = (struct pollfd){.fd = out->stage == STAGE_JOINED ? -1 : out->fd, .events = out->stage == STAGE_CONNECTING ? POLLOUT : POLLIN};
    set[GUESTS_MAX + 2] = (struct pollfd){.fd = LEADER_FD, .events = POLLRDHUP};
    if (poll(set, n, ms_until(deadline)) < 0)
        return;
    if (set[GUESTS_MAX + 2].revents != 0)
        _exit(0);
    if (set[GUESTS_MAX + 1].revents != 0)
        advance_outgoing(lane, out);
    for (int i = 0; i < GUESTS_MAX; i++)
        if (set[i].revents != 0 && lane->previous < 0)
            advance_incoming(lane, &guests[i]);
    if (set[GUESTS_MAX].revents != 0)
        accept_guest(lane, guests);
}

void lane_connect(struct lane *lane)
{
    lane->state = LANE_CONNECTING;
    int64_t deadline = now_ns() + lane->config.setup_ns;
    struct guest out = {.fd = -1}, guests[GUESTS_MAX];
    for (int i = 0; i < GUESTS_MAX; i++)
        guests[i] = (struct guest){.fd = -1};
    fcntl(lane->listener, F_SETFL, O_NONBLOCK);
    start_connecting(lane, &out);
    while (lane->previous < 0 || lane->next < 0) {
        wait_once(lane, &out, guests, deadline);
        if (now_ns() < deadline || (lane->previous >= 0 && lane->next >= 0))
            continue;
        if (lane->next < 0)
            lane_fail(lane, CAUSE_HANDSHAKE, "host %s does not answer (is a firewall between? see --ports and --iface)", lane->config.next_name);
        lane_fail(lane, CAUSE_HANDSHAKE, "host %s did not connect (is a firewall between? see --ports and --iface)", lane->config.previous_name);
    }
    for (int i = 0; i < GUESTS_MAX; i++)
        if (guests[i].fd >= 0)
            dismiss(&guests[i]);
    close(lane->listener);
    lane->listener = -1;
}
