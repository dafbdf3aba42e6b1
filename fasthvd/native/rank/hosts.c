#define _GNU_SOURCE
#include "hosts.h"

#include "../common/clock.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { MEETING_SECONDS = 20 };

/* What a rank tells its leader, with the descriptors {input memory, pidfd}. */
struct greeting {
    int32_t rank;
    uint32_t pid;
    uint64_t address;
    uint8_t sample[TOKEN_BYTES];
    uint8_t meeting[TOKEN_BYTES];
};

/* The second round: whom did I reach? */
struct reached {
    uint32_t ok;
    int32_t leader;
    char error[CAUSE_BYTES];
};

static uint64_t mix(uint64_t digest, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return digest;
}

static void fill_card(const struct lanes *lanes, struct card *card)
{
    memset(card, 0, sizeof *card);
    card->ok = 1;
    card->uid = getuid();
    snprintf(card->host_name, sizeof card->host_name, "%s", lanes->host_name);
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL)
            boot[0] = '\0';
        fclose(file);
    }
    struct stat network = {.st_ino = 0};
    if (stat("/proc/self/ns/net", &network) != 0)
        network.st_ino = 0;
    card->network = mix(mix(14695981039346656037u, boot, strlen(boot)), &network.st_ino, sizeof network.st_ino);
    card->machine = mix(card->network, lanes->settings.host_id, strlen(lanes->settings.host_id));
    if (getrandom(card->meeting, TOKEN_BYTES, 0) != TOKEN_BYTES || getrandom(card->token, TOKEN_BYTES, 0) != TOKEN_BYTES) {
        card->ok = 0;
        snprintf(card->error, sizeof card->error, "no random numbers: %s", strerror(errno));
    }
    if (addresses_of_host(lanes->settings.iface, card->addresses) == 0) {
        card->ok = 0;
        snprintf(card->error, sizeof card->error, "no network interface '%.100s' with an address (see --iface)", lanes->settings.iface);
    }
}

/* The socket's name holds the random meeting token: known to this job only. */
static socklen_t meeting_address(const uint8_t meeting[TOKEN_BYTES], struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "fasthvd-");
    for (int i = 0; i < TOKEN_BYTES; i++)
        n += snprintf(address->sun_path + 1 + n, sizeof address->sun_path - 1 - (size_t)n, "%02x", meeting[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int listen_for_members(const uint8_t meeting[TOKEN_BYTES])
{
    struct sockaddr_un address;
    socklen_t length = meeting_address(meeting, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, LOCAL_MAX) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool all_ok(const void *records, int n, size_t stride, size_t text, const struct card *cards, char why[CAUSE_BYTES])
{
    for (int i = 0; i < n; i++) {
        const char *record = (const char *)records + stride * (size_t)i;
        if (*(const uint32_t *)record)
            continue;
        snprintf(why, CAUSE_BYTES, "host %.40s, rank %d: %.190s", cards[i].host_name, i, record + text);
        return false;
    }
    return true;
}

/* Joins the leader; -1 when it cannot be reached, and this rank is then a host of its own. */
static int join(const struct lanes *lanes, const struct card *leader)
{
    struct sockaddr_un address;
    socklen_t length = meeting_address(leader->meeting, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct greeting greeting = {.rank = lanes->transport.rank, .pid = (uint32_t)getpid(), .address = (uintptr_t)lanes->sample};
    memcpy(greeting.sample, lanes->sample, TOKEN_BYTES);
    memcpy(greeting.meeting, leader->meeting, TOKEN_BYTES);
    int fds[2] = {lanes->input.fd, (int)syscall(SYS_pidfd_open, getpid(), 0)};
    bool joined = connect(fd, (struct sockaddr *)&address, length) == 0 &&
                  ipc_send(fd, &greeting, sizeof greeting, fds, fds[1] >= 0 ? 2 : 1) == (ssize_t)sizeof greeting;
    if (fds[1] >= 0)
        close(fds[1]);
    if (joined)
        return fd;
    close(fd);
    return -1;
}

static bool accept_member(const struct card *own, int listener, struct meeting *meeting, int64_t deadline)
{
    int fds[2], n = 0;
    struct greeting greeting;
    struct ucred peer;
    socklen_t length = sizeof peer;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = ipc_receive_until(fd, &greeting, sizeof greeting, fds, 2, &n, deadline);
    if (got != sizeof greeting || n < 1 || memcmp(greeting.meeting, own->meeting, TOKEN_BYTES) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != getuid()) {
        close_all(fds, n);
        close(fd);
        return false;
    }
    meeting->members[meeting->member_count++] =
        (struct member){.socket = fd, .input = fds[0], .pidfd = n == 2 ? fds[1] : -1, .rank = greeting.rank, .pid = greeting.pid,
                        .address = greeting.address};
    memcpy(meeting->members[meeting->member_count - 1].sample, greeting.sample, TOKEN_BYTES);
    return true;
}

static void lead(const struct lanes *lanes, const struct card *own, int listener, int expected, struct meeting *meeting)
{
    int64_t deadline = now_ns() + MEETING_SECONDS * NS_PER_S;
    meeting->members[0] = (struct member){.socket = -1, .input = lanes->input.fd, .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0),
                                          .rank = lanes->transport.rank, .pid = (uint32_t)getpid(), .address = (uintptr_t)lanes->sample};
    memcpy(meeting->members[0].sample, lanes->sample, TOKEN_BYTES);
    meeting->member_count = 1;
    while ((int)meeting->member_count < expected && now_ns() < deadline) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, ms_until(deadline)) > 0)
            accept_member(own, listener, meeting, deadline);
    }
    for (uint32_t i = 1; i < meeting->member_count; i++) /* in rank order on every run */
        for (uint32_t j = i; j > 1 && meeting->members[j].rank < meeting->members[j - 1].rank; j--) {
            struct member swap = meeting->members[j];
            meeting->members[j] = meeting->members[j - 1];
            meeting->members[j - 1] = swap;
        }
}

/* Numbers the hosts by their leaders' ranks and checks that everybody has the same picture. */
static void number_hosts(const struct lanes *lanes, struct meeting *meeting, const struct reached *reached)
{
    int size = lanes->transport.size, rank = lanes->transport.rank;
    uint32_t local = 0;
    for (int i = 0; i < size; i++) {
        meeting->leaders[i] = reached[i].leader;
        if (reached[i].leader == i) {
            if (i == reached[rank].leader)
                meeting->host = meeting->hosts;
            meeting->host_leaders[meeting->hosts++] = i;
        }
        if (reached[i].leader == reached[rank].leader) {
            if (i == rank)
                meeting->local = local;
            local++;
        }
    }
    if (reached[rank].leader != rank)
        meeting->member_count = local;
}

bool hosts_meet(const struct lanes *lanes, struct meeting *meeting, char why[CAUSE_BYTES])
{
    int size = lanes->transport.size, rank = lanes->transport.rank;
    *meeting = (struct meeting){.leader_socket = -1};
    struct card own;
    struct reached mine = {.ok = 1, .leader = rank};
    fill_card(lanes, &own);
    int listener = listen_for_members(own.meeting);
    if (listener < 0 || lanes->input.fd < 0) {
        own.ok = 0;
        snprintf(own.error, sizeof own.error, "%s: %s", listener < 0 ? "no Unix socket" : "no memfd", strerror(errno));
    }
    meeting->cards = calloc((size_t)size, sizeof *meeting->cards);
    meeting->leaders = calloc((size_t)size, sizeof *meeting->leaders);
    meeting->host_leaders = calloc((size_t)size, sizeof *meeting->host_leaders);
    struct reached *reached = calloc((size_t)size, sizeof *reached);
    bool good = lanes->transport.gather(lanes->transport.context, &own, sizeof own, meeting->cards);
    good = good && all_ok(meeting->cards, size, sizeof own, offsetof(struct card, error), meeting->cards, why);
    int first = -1, expected = 0;
    for (int i = 0; good && i < size; i++)
        if (meeting->cards[i].machine == own.machine && meeting->cards[i].uid == own.uid) {
            first = first < 0 ? i : first;
            expected++;
        }
    if (good && expected > LOCAL_MAX) {
        mine.ok = 0;
        snprintf(mine.error, sizeof mine.error, "%d ranks on one host are more than %d", expected, LOCAL_MAX);
    } else if (good && first == rank) {
        lead(lanes, &own, listener, expected, meeting);
    } else if (good && (meeting->leader_socket = join(lanes, &meeting->cards[first])) >= 0) {
        mine.leader = first;
    }
    if (good && mine.leader == rank && first != rank) /* a host of its own: another mount or network view */
        lead(lanes, &own, listener, 1, meeting);
    good = good && lanes->transport.gather(lanes->transport.context, &mine, sizeof mine, reached) &&
           all_ok(reached, size, sizeof mine, offsetof(struct reached, error), meeting->cards, why);
    if (good)
        number_hosts(lanes, meeting, reached);
    if (listener >= 0)
        close(listener);
    free(reached);
    return good;
}

uint32_t *hosts_of_ranks(const struct meeting *meeting, int size)
{
    uint32_t *hosts = calloc((size_t)size, sizeof *hosts);
    if (hosts == NULL)
        abort(); /* as in lanes_create */
    for (int i = 0; i < size; i++)
        while (meeting->host_leaders[hosts[i]] != meeting->leaders[i])
            hosts[i]++;
    return hosts;
}

void hosts_part(struct meeting *meeting)
{
    for (uint32_t i = 0; meeting->leader_socket < 0 && i < meeting->member_count; i++) {
        if (meeting->members[i].socket >= 0) {
            close(meeting->members[i].socket);
            close(meeting->members[i].input);
        }
        if (meeting->members[i].pidfd >= 0)
            close(meeting->members[i].pidfd);
    }
    if (meeting->leader_socket >= 0)
        close(meeting->leader_socket);
    free(meeting->cards);
    free(meeting->leaders);
    free(meeting->host_leaders);
}
