#define _GNU_SOURCE
#include "start.h"

#include "../common/clock.h"
#include "end.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SETUP_SECONDS = 20 };

/* The third round: where the lanes of a host listen. */
struct ring_card {
    uint32_t ok;
    char error[CAUSE_BYTES];
    struct address addresses[LANES_MAX];
};

/* The last round: which lanes stand. */
struct ready_card {
    uint32_t ok;
    char error[CAUSE_BYTES];
    uint64_t ready;
    uint32_t cause, lane;
    char text[CAUSE_BYTES];
};

/* From the leader to another rank of its host. */
struct handover {
    uint32_t lane; /* with {control socket}; LANES_MAX: the end, with {result memory, board} */
    uint32_t read_in_place; /* at the end */
};

struct start {
    struct lanes *lanes;
    struct meeting *meeting;
    int listeners[LANES_MAX];
    struct ring_card *rings;
    uint64_t readable[LOCAL_MAX / 64]; /* local ranks whose memory every lane may read */
};

static bool trouble(char error[CAUSE_BYTES], const char *what)
{
    snprintf(error, CAUSE_BYTES, "%s: %s", what, errno == EMFILE || errno == ENFILE ? "no file descriptors left (raise 'ulimit -n')" : strerror(errno));
    return false;
}

/* Are `address` of this host and `other` of host card `theirs` in one network? A bridge for containers has the same address
 * on every machine, and leads nowhere. */
static bool reaches(const struct start *start, const struct address *address, const struct card *theirs, const struct address *other)
{
    bool one_machine = theirs->network == start->meeting->cards[start->lanes->transport.rank].network;
    return same_network(address, other) && (one_machine || !same_address(address, other));
}

/* How many of the hosts are in the same network as `address`? */
static int reach(const struct start *start, const struct address *address)
{
    int near = 0;
    for (uint32_t h = 0; h < start->meeting->hosts; h++) {
        const struct card *theirs = &start->meeting->cards[start->meeting->host_leaders[h]];
        for (int i = 0; i < ADDRESSES_MAX && theirs->addresses[i].family != 0; i++)
            if (reaches(start, address, theirs, &theirs->addresses[i])) {
                near++;
                break;
            }
    }
    return near;
}

/* The address of lane `lane`: interfaces that were named take turns; else the one that is near most hosts. */
static struct address choose_address(const struct start *start, uint32_t lane)
{
    const struct card *own = &start->meeting->cards[start->lanes->transport.rank];
    int n = 0, best = -1, best_reach = 0;
    bool one_machine = true;
    while (n < ADDRESSES_MAX && own->addresses[n].family != 0)
        n++;
    if (address_named(start->lanes->settings.iface))
        return own->addresses[lane % (uint32_t)n];
    for (uint32_t h = 0; h < start->meeting->hosts; h++)
        one_machine &= start->meeting->cards[start->meeting->host_leaders[h]].network == own->network;
    for (int i = 0; i < n; i++) {
        int near = (bool)own->addresses[i].loopback == one_machine ? reach(start, &own->addresses[i]) : 0;
        if (near > best_reach) {
            best = i;
            best_reach = near;
        }
    }
    return own->addresses[best >= 0 ? best : 0];
}

/* At once, not at the end: they may be the very descriptors that the other ranks' answer needs. */
static void close_listeners(struct start *start)
{
    close_all(start->listeners, LANES_MAX);
    memset(start->listeners, -1, sizeof start->listeners);
}

static bool open_listeners(struct start *start, struct ring_card *card)
{
    struct lanes *lanes = start->lanes;
    for (uint32_t i = 0; i < (uint32_t)lanes->settings.aux; i++) {
        card->addresses[i] = choose_address(start, i);
        start->listeners[i] = address_listen(&card->addresses[i], lanes->settings.port_first, lanes->settings.port_last);
        if (start->listeners[i] >= 0)
            continue;
        if (errno == EADDRINUSE)
            snprintf(card->error, CAUSE_BYTES, "no free port between %d and %d for lane %u (see --ports)", lanes->settings.port_first,
                     lanes->settings.port_last, i);
        else
            trouble(card->error, "cannot listen");
        close_listeners(start);
        return false;
    }
    return true;
}

static bool configure(struct start *start, uint32_t lane, char error[CAUSE_BYTES])
{
    struct lanes *lanes = start->lanes;
    struct meeting *meeting = start->meeting;
    uint32_t next = (meeting->host + 1) % meeting->hosts, previous = (meeting->host + meeting->hosts - 1) % meeting->hosts;
    struct lane_config config = {
        .kind = CONTROL_CONFIG, .protocol = FASTHVD_PROTOCOL, .lane = lane, .host = meeting->host, .hosts = meeting->hosts,
        .local_ranks = meeting->member_count, .setup_ns = SETUP_SECONDS * NS_PER_S, .flow_ns = lanes->settings.timeout_ns / 8 * 3,
        .stall_ns = lanes->settings.timeout_ns, .beat_ns = lanes->settings.timeout_ns / 16, .pinned = lanes->settings.pin,
    };
    memcpy(config.token, meeting->cards[0].token, TOKEN_BYTES);
    memcpy(config.own_name, lanes->host_name, NAME_BYTES);
    memcpy(config.next_name, meeting->cards[meeting->host_leaders[next]].host_name, NAME_BYTES);
    memcpy(config.previous_name, meeting->cards[meeting->host_leaders[previous]].host_name, NAME_BYTES);
    int fds[3] = {lanes->result.fd, lanes->board_area.fd, start->listeners[lane]};
    if (meeting->hosts > 1) {
        address_to_socket(&start->rings[lanes->transport.rank].addresses[lane], &config.own_address);
        address_to_socket(&start->rings[meeting->host_leaders[next]].addresses[lane], &config.next_address);
    }
    if (ipc_send(lanes->ends[lane].setup, &config, sizeof config, fds, meeting->hosts > 1 ? 3 : 2) < 0)
        return trouble(error, "cannot configure a lane");
    return true;
}

/* Gives the lane a control socket of every local rank, and that rank the other end. */
static bool attach(struct start *start, uint32_t lane, char error[CAUSE_BYTES])
{
    struct lanes *lanes = start->lanes;
    for (uint32_t i = 0; i < start->meeting->member_count; i++) {
        struct member *member = &start->meeting->members[i];
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            return trouble(error, "cannot make a control socket");
        struct control message = {.kind = CONTROL_ATTACH, .local_rank = i, .pid = member->pid, .address = member->address};
        memcpy(message.sample, member->sample, TOKEN_BYTES);
        struct handover handover = {.lane = lane};
        int fds[3] = {pair[0], member->input, member->pidfd};
        bool good = ipc_send(lanes->ends[lane].setup, &message, sizeof message, fds, member->pidfd >= 0 ? 3 : 2) > 0;
        if (member->socket < 0)
            lanes->ends[lane].control = pair[1];
        else
            good = good && ipc_send(member->socket, &handover, sizeof handover, &pair[1], 1) > 0;
        int error_number = errno;
        close(pair[0]);
        if (member->socket >= 0)
            close(pair[1]);
        errno = error_number;
        if (!good)
            return trouble(error, "cannot attach a lane");
    }
    return true;
}

static bool spawn_one(struct start *start, uint32_t lane, char error[CAUSE_BYTES])
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return trouble(error, "cannot make a control socket");
    int control = fcntl(pair[0], F_DUPFD_CLOEXEC, 10); /* not one of 0 to 3, which the lane has for other things */
    close(pair[0]);
    start->lanes->ends[lane].setup = pair[1];
    if (control < 0)
        return trouble(error, "cannot make a control socket");
    int failed = spawn_lane(start->lanes->settings.program, control);
    close(control);
    if (failed != 0) {
        snprintf(error, CAUSE_BYTES, "cannot start %.190s: %s", start->lanes->settings.program, strerror(failed));
        return false;
    }
    return configure(start, lane, error) && attach(start, lane, error);
}

static void await_ready(struct start *start, struct ready_card *card, int64_t deadline)
{
    memset(start->readable, 0xff, sizeof start->readable);
    for (uint32_t i = 0; i < (uint32_t)start->lanes->settings.aux; i++) {
        struct lane_end *end = &start->lanes->ends[i];
        struct control message = {.kind = 0};
        int n = 0;
        ssize_t got = ipc_receive_until(end->setup, &message, sizeof message, &end->pidfd, 1, &n, deadline);
        if (n == 0)
            end->pidfd = -1;
        if (got == sizeof message && message.kind == CONTROL_READY) {
            card->ready |= 1ull << i;
            end->pid = message.pid;
            for (size_t word = 0; word < LOCAL_MAX / 64; word++)
                start->readable[word] &= message.readable[word];
        } else if (card->cause < (message.kind == CONTROL_FAILED ? message.cause : CAUSE_DIED)) {
            card->cause = message.kind == CONTROL_FAILED ? message.cause : CAUSE_DIED;
            card->lane = i;
            if (message.kind == CONTROL_FAILED)
                snprintf(card->text, CAUSE_BYTES, "%.*s", CAUSE_BYTES - 1, message.text);
            else
                snprintf(card->text, CAUSE_BYTES, "%s", got < 0 && errno == ETIMEDOUT ? "the lane does not answer" : "the lane process died");
        }
    }
}

static bool hand_over(struct start *start, char error[CAUSE_BYTES])
{
    int fds[2] = {start->lanes->result.fd, start->lanes->board_area.fd};
    start->lanes->read_in_place = start->readable[0] & 1 && !start->lanes->settings.copy;
    for (uint32_t i = 1; i < start->meeting->member_count; i++) {
        struct handover last = {.lane = LANES_MAX, .read_in_place = start->readable[i / 64] >> i % 64 & 1};
        if (ipc_send(start->meeting->members[i].socket, &last, sizeof last, fds, 2) < 0)
            return trouble(error, "cannot hand the lanes to another rank of this host");
    }
    return true;
}

static bool take_over(struct start *start, char error[CAUSE_BYTES], int64_t deadline)
{
    struct lanes *lanes = start->lanes;
    for (;;) {
        struct handover got;
        int fds[2] = {-1, -1}, n = 0;
        if (ipc_receive_until(start->meeting->leader_socket, &got, sizeof got, fds, 2, &n, deadline) != sizeof got || n == 0) {
            snprintf(error, CAUSE_BYTES, "the leader of this host gave no lanes");
            return false;
        }
        if (got.lane < LANES_MAX) {
            lanes->ends[got.lane].control = fds[0];
            continue;
        }
        lanes->result.fd = fds[0];
        lanes->board_area.fd = fds[1];
        lanes->read_in_place = got.read_in_place && !lanes->settings.copy;
        return n == 2 || trouble(error, "no descriptors of the lanes' memory");
    }
}

static void lead_start(struct start *start, struct ready_card *card, int64_t deadline)
{
    bool good = true;
    for (uint32_t i = 0; good && i < (uint32_t)start->lanes->settings.aux; i++)
        good = spawn_one(start, i, card->error);
    close_listeners(start);
    for (int i = 0; !good && i < start->lanes->settings.aux; i++)
        end_close(&start->lanes->ends[i], true);
    if (good)
        await_ready(start, card, deadline);
    card->ok = good && hand_over(start, card->error);
}

static bool agree_ready(struct start *start, const struct ready_card *card, char why[CAUSE_BYTES])
{
    struct lanes *lanes = start->lanes;
    int size = lanes->transport.size;
    struct ready_card *all = calloc((size_t)size, sizeof *all);
    bool good = lanes->transport.gather(lanes->transport.context, card, sizeof *card, all) &&
                all_ok(all, size, sizeof *all, offsetof(struct ready_card, error), start->meeting->cards, why);
    lanes->alive = good ? (lanes->settings.aux == 64 ? ~0ull : (1ull << lanes->settings.aux) - 1) : 0;
    uint32_t worst = CAUSE_NONE;
    for (int i = 0; good && i < size; i++) {
        lanes->alive &= all[i].ready;
        if (all[i].cause > worst) {
            worst = all[i].cause;
            snprintf(why, CAUSE_BYTES, "host %.40s, lane %u: %.190s", start->meeting->cards[i].host_name, all[i].lane, all[i].text);
        }
    }
    free(all);
    lanes->started = __builtin_popcountll(lanes->alive);
    return good && lanes->alive != 0;
}

bool start_lanes(struct lanes *lanes, struct meeting *meeting, char why[CAUSE_BYTES])
{
    struct start start = {.lanes = lanes, .meeting = meeting, .rings = calloc((size_t)lanes->transport.size, sizeof *start.rings)};
    struct ring_card *card = calloc(1, sizeof *card);
    struct ready_card ready = {.ok = 1, .ready = ~0ull};
    memset(start.listeners, -1, sizeof start.listeners);
    card->ok = 1;
    if (lanes->leader) {
        card->ok = area_create(&lanes->result, "fasthvd-result") && area_create(&lanes->board_area, "fasthvd-board") &&
                   area_grow(&lanes->board_area, sizeof(struct lane_board) * LANES_MAX);
        if (!card->ok)
            trouble(card->error, "no memory for the lanes");
        else if (meeting->hosts > 1)
            card->ok = open_listeners(&start, card);
        ready.ready = 0;
    }
    bool good = lanes->transport.gather(lanes->transport.context, card, sizeof *card, start.rings) &&
                all_ok(start.rings, lanes->transport.size, sizeof *card, offsetof(struct ring_card, error), meeting->cards, why);
    int64_t deadline = now_ns() + (SETUP_SECONDS + 5) * NS_PER_S;
    if (good && lanes->leader)
        lead_start(&start, &ready, deadline);
    else if (good)
        ready.ok = take_over(&start, ready.error, deadline);
    good = good && agree_ready(&start, &ready, why);
    if (good)
        good = area_map(&lanes->board_area, sizeof(struct lane_board) * LANES_MAX); /* 4 KiB; else the first allreduce fails and is redone */
    lanes->board = (struct lane_board *)lanes->board_area.at;
    free(start.rings);
    free(card);
    return good;
}
