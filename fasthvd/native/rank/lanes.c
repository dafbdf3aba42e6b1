#define _GNU_SOURCE
#include "lanes.h"

#include "../common/clock.h"
#include "end.h"
#include "hosts.h"
#include "start.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <signal.h>
#include <unistd.h>

enum { FAREWELL_MS = 2000 };

struct lanes *lanes_create(const struct settings *settings, const struct transport *transport, char why[CAUSE_BYTES])
{
    struct lanes *lanes = calloc(1, sizeof *lanes);
    snprintf(why, CAUSE_BYTES, "the ranks cannot speak to each other");
    if (lanes == NULL)
        abort(); /* not even 20 KB: and the other ranks wait for us */
    lanes->settings = *settings;
    lanes->transport = *transport;
    lanes->limit = LANES_MAX;
    lanes->result.fd = lanes->board_area.fd = -1;
    for (int i = 0; i < LANES_MAX; i++)
        lanes->ends[i] = (struct lane_end){.control = -1, .setup = -1, .pidfd = -1};
    if (settings->host_id[0] != '\0')
        snprintf(lanes->host_name, sizeof lanes->host_name, "%.60s", settings->host_id);
    else if (gethostname(lanes->host_name, sizeof lanes->host_name - 1) != 0)
        snprintf(lanes->host_name, sizeof lanes->host_name, "unknown");
    area_create(&lanes->input, "fasthvd-input");
    if (getrandom(lanes->sample, TOKEN_BYTES, 0) != TOKEN_BYTES)
        memset(lanes->sample, 0x5a, TOKEN_BYTES);
    struct meeting meeting;
    bool good = hosts_meet(lanes, &meeting, why);
    if (good) {
        lanes->hosts = meeting.hosts;
        lanes->host = meeting.host;
        lanes->local_ranks = meeting.member_count;
        lanes->local = meeting.local;
        lanes->leader = meeting.leader_socket < 0;
        lanes->hosts_of_ranks = hosts_of_ranks(&meeting, transport->size);
        good = start_lanes(lanes, &meeting, why);
    }
    hosts_part(&meeting);
    if (!good) {
        lanes_close(lanes);
        return NULL;
    }
    for (int i = 0; i < LANES_MAX; i++)
        if (!(lanes->alive >> i & 1))
            end_close(&lanes->ends[i], true);
    return lanes;
}

void end_close(struct lane_end *end, bool kill_it)
{
    if (end->control >= 0)
        close(end->control);
    if (end->setup >= 0)
        close(end->setup);
    if (end->pidfd >= 0) {
        if (kill_it)
            syscall(SYS_pidfd_send_signal, end->pidfd, SIGKILL, NULL, 0);
        close(end->pidfd);
    }
    end->control = end->setup = end->pidfd = -1;
}

/* Lanes end when their sockets close; this only makes sure that none is left when MPI_Finalize returns. */
static void see_them_off(struct lanes *lanes)
{
    int64_t deadline = now_ns() + FAREWELL_MS * NS_PER_MS;
    for (int i = 0; i < LANES_MAX; i++) {
        struct lane_end *end = &lanes->ends[i];
        struct pollfd gone = {.fd = end->pidfd, .events = POLLIN};
        if (end->pidfd >= 0)
            end_close(end, poll(&gone, 1, ms_until(deadline)) <= 0);
    }
}

static void close_sockets(struct lanes *lanes)
{
    for (int i = 0; i < LANES_MAX; i++) {
        struct lane_end *end = &lanes->ends[i];
        if (end->control >= 0)
            close(end->control);
        if (end->setup >= 0)
            close(end->setup);
        end->control = end->setup = -1;
    }
}

void lanes_close(struct lanes *lanes)
{
    if (lanes == NULL)
        return;
    close_sockets(lanes);
    see_them_off(lanes);
    area_close(&lanes->input);
    area_close(&lanes->result);
    area_close(&lanes->board_area);
    free(lanes->hosts_of_ranks);
    free(lanes);
}

void lanes_forget(struct lanes *lanes)
{
    close_sockets(lanes);
    for (int i = 0; i < LANES_MAX; i++)
        if (lanes->ends[i].pidfd >= 0)
            close(lanes->ends[i].pidfd);
    const int areas[] = {lanes->input.fd, lanes->result.fd, lanes->board_area.fd};
    close_all(areas, 3);
}

int lanes_usable(const struct lanes *lanes)
{
    int alive = __builtin_popcountll(lanes->alive);
    return alive < lanes->limit ? alive : lanes->limit;
}
