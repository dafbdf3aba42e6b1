/* What the leader tells a new lane. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void take_config(struct lane *lane, int64_t deadline)
{
    int fds[CONFIG_FDS], n = 0;
    ssize_t got = ipc_receive_until(LEADER_FD, &lane->config, sizeof lane->config, fds, CONFIG_FDS, &n, deadline);
    struct lane_config *config = &lane->config;
    if (got <= 0)
        _exit(0); /* the leader is gone: nobody is left to tell */
    if (got != sizeof *config || config->kind != CONTROL_CONFIG || config->protocol != FASTHVD_PROTOCOL || n < 2 ||
        config->hosts > HOSTS_MAX || config->local_ranks > LOCAL_MAX || (config->hosts > 1) != (n == 3))
        lane_fail(lane, CAUSE_SYSTEM, "the lane program is of another version than libfasthvd.so: install one version on all hosts");
    lane->result.fd = fds[0];
    lane->board_area.fd = fds[1];
    if (n == 3)
        lane->listener = fds[2];
}

static void take_attach(struct lane *lane, int64_t deadline)
{
    struct control message;
    int fds[3], n = 0;
    ssize_t got = ipc_receive_until(LEADER_FD, &message, sizeof message, fds, 3, &n, deadline);
    if (got <= 0)
        _exit(0);
    if (got != sizeof message || message.kind != CONTROL_ATTACH || n < 2 || message.local_rank >= lane->config.local_ranks)
        lane_fail(lane, CAUSE_SYSTEM, "no room for the descriptors of local rank %u (raise 'ulimit -n')", message.local_rank);
    struct local_rank *local = &lane->locals[message.local_rank];
    local->control = fds[0];
    local->input.fd = fds[1];
    local->pidfd = n == 3 ? fds[2] : -1;
    local->pid = (pid_t)message.pid;
    /* Is that process, as this one sees it, the rank, and may it be read? Its sample tells. */
    uint8_t sample[TOKEN_BYTES];
    struct iovec here = {sample, sizeof sample}, there = {(void *)(uintptr_t)message.address, sizeof sample};
    if (process_vm_readv(local->pid, &here, 1, &there, 1, 0) == TOKEN_BYTES && memcmp(sample, message.sample, sizeof sample) == 0)
        lane->readable[message.local_rank / 64] |= 1ull << message.local_rank % 64;
}

void lane_setup(struct lane *lane)
{
    lane->state = LANE_STARTING;
    int64_t deadline = now_ns() + 60 * NS_PER_S;
    take_config(lane, deadline);
    lane->locals = calloc(lane->config.local_ranks, sizeof *lane->locals);
    lane->watched = calloc(WATCH_LOCALS + 2 * lane->config.local_ranks, sizeof *lane->watched);
    if (lane->locals == NULL || lane->watched == NULL || !area_map(&lane->board_area, sizeof(struct lane_board) * LANES_MAX))
        lane_fail(lane, CAUSE_SYSTEM, "out of memory: %s", strerror(errno));
    lane->board = (struct lane_board *)lane->board_area.at + lane->config.lane;
    for (uint32_t i = 0; i < lane->config.local_ranks; i++)
        lane->locals[i] = (struct local_rank){.control = -1, .pidfd = -1, .input.fd = -1};
    for (uint32_t i = 0; i < lane->config.local_ranks; i++)
        take_attach(lane, deadline);
}
