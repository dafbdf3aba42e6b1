#define _GNU_SOURCE
#include "counters.h"

#include "../common/clock.h"
#include "say.h"

#include <stdlib.h>
#include <string.h>

/* Horovod makes about a thousand control calls a second: this is after 20 s of training without gradients by MPI. */
enum { HINT_AFTER_CALLS = 20000 };

static struct {
    uint64_t carried_calls, carried_bytes;
    uint64_t calls[PASSED_REASONS], bytes[PASSED_REASONS], largest;
    bool hinted;
} counters;

struct host_counters {
    uint32_t leader, started, hosts, host;
    char host_name[NAME_BYTES];
    struct lane_board board[LANES_MAX];
};

void counters_carried(uint64_t bytes)
{
    counters.carried_calls++;
    counters.carried_bytes += bytes;
}

void counters_passed(enum passed why, uint64_t bytes)
{
    counters.calls[why]++;
    counters.bytes[why] += bytes;
    if (bytes > counters.largest)
        counters.largest = bytes;
}

void counters_hint(int64_t threshold_bytes)
{
    if (counters.hinted || counters.carried_calls > 0 || counters.calls[PASSED_SMALL] < HINT_AFTER_CALLS)
        return;
    counters.hinted = true;
    say("no gradient has come through MPI_Allreduce yet (largest call: %llu bytes, lanes take %lld and more). If NCCL carries them, "
        "HOROVOD_HIERARCHICAL_ALLREDUCE=1 sends the part between hosts through MPI; if Gloo does, HOROVOD_CPU_OPERATIONS=MPI helps",
        (unsigned long long)counters.largest, (long long)threshold_bytes);
}

static void print_calls(void)
{
    static const char *const reasons[PASSED_REASONS] = {"below the threshold", "type",  "operation",     "communicator",
                                                        "device memory",       "no lanes", "failed, redone"};
    say("stats: rank 0 sent %llu allreduces, %.3f MB, over the lanes", (unsigned long long)counters.carried_calls, counters.carried_bytes / 1e6);
    for (int i = 0; i < PASSED_REASONS; i++)
        if (counters.calls[i] > 0)
            say("stats: rank 0 passed %llu allreduces, %.3f MB, to MPI: %s", (unsigned long long)counters.calls[i], counters.bytes[i] / 1e6,
                reasons[i]);
}

static void print_host(const struct host_counters *host)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const struct lane_board *lane = &host->board[i];
        if (lane->jobs == 0)
            continue;
        double flow_s = (double)lane->flow_ns / NS_PER_S;
        say("stats: %-16s lane %2u %8llu jobs %12.3f MB sent %12.3f MB received %9.3f s busy %9.3f s waiting %8.3f Gbit/s %6llu retransmits",
            host->host_name, i, (unsigned long long)lane->jobs, lane->bytes_sent / 1e6, lane->bytes_received / 1e6,
            (double)lane->busy_ns / NS_PER_S, (double)lane->wait_ns / NS_PER_S, flow_s > 0 ? lane->bytes_sent * 8e-9 / flow_s : 0.0,
            (unsigned long long)lane->retransmits);
    }
}

void counters_print(const struct lanes *lanes, struct mpi_group *group)
{
    struct host_counters *mine = calloc(1, sizeof *mine), *all = calloc((size_t)group->size, sizeof *all);
    if (mine != NULL && lanes != NULL) {
        mine->leader = lanes->leader;
        memcpy(mine->host_name, lanes->host_name, NAME_BYTES);
        memcpy(mine->board, lanes->board, sizeof mine->board);
    }
    struct transport transport = messages_transport(group);
    if (mine != NULL && all != NULL && transport.gather(group, mine, sizeof *mine, all) && group->rank == 0) {
        for (int i = 0; i < group->size; i++)
            if (all[i].leader)
                print_host(&all[i]);
        print_calls();
    }
    free(mine);
    free(all);
}
