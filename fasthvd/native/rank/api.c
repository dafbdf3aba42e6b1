/* The C interface of the lanes without MPI (Python: vsketchdlc.fasthvd.lanes). Every rank of the group calls each
 * function at the same point. The caller brings one callback: everybody's bytes to everybody. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* Puts all ranks' `bytes` bytes into `all`, in rank order. 0, or another number when the group is broken. */
typedef int gather_function(void *context, const void *mine, uint64_t bytes, void *all);

struct fasthvd {
    gather_function *gather;
    void *context;
    int size;
    struct lanes *lanes;
};

static bool gather(void *context, const void *mine, size_t bytes, void *all)
{
    const struct fasthvd *group = context;
    return group->gather(group->context, mine, bytes, all) == 0;
}

static bool vote(void *context, uint64_t ballot[2], int64_t timeout_ns, char why[CAUSE_BYTES])
{
    (void)timeout_ns; /* the caller's gather has its own */
    const struct fasthvd *group = context;
    uint64_t(*all)[2] = calloc((size_t)group->size, sizeof *all);
    bool good = all != NULL && gather(context, ballot, sizeof *all, all);
    for (int i = 0; good && i < group->size; i++) {
        ballot[0] &= all[i][0];
        ballot[1] &= all[i][1];
    }
    free(all);
    if (!good)
        snprintf(why, CAUSE_BYTES, "the ranks cannot reach each other any more");
    return good;
}

/* Lanes for the group of `size` ranks. Settings come from FASTHVD_* variables; `aux`, `timeout_s` and `host_id` (if
 * not empty) stand above them. NULL: `why` (CAUSE_BYTES = 256 bytes) says why, the same on all ranks. */
API struct fasthvd *fasthvd_open(int rank, int size, int aux, double timeout_s, const char *host_id, gather_function *callback,
                                 void *context, char *why)
{
    struct settings settings;
    char wrong[SETTING_BYTES] = "";
    if (!settings_read(&settings, wrong) || aux < 1 || aux > LANES_MAX || rank < 0 || rank >= size) {
        snprintf(why, CAUSE_BYTES, "%.190s", *wrong != '\0' ? wrong : "aux must be 1 to 64, rank below size");
        return NULL;
    }
    settings.aux = aux;
    settings.timeout_ns = (int64_t)(timeout_s * NS_PER_S);
    if (*host_id != '\0')
        snprintf(settings.host_id, sizeof settings.host_id, "%s", host_id);
    struct fasthvd *group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    *group = (struct fasthvd){.gather = callback, .context = context, .size = size};
    struct transport transport = {.rank = rank, .size = size, .context = group, .gather = gather, .vote = vote};
    group->lanes = lanes_create(&settings, &transport, why);
    if (group->lanes != NULL)
        return group;
    free(group);
    return NULL;
}

/* recv = send (op) over all ranks; `type` and `op` as in protocol.h. 0 done, 1 failed on all ranks with `recv` and `send`
 * untouched (do it another way), 2 the ranks did not call the same, 3 the group is broken. `why` as above. */
API int fasthvd_allreduce(struct fasthvd *group, const void *send, void *recv, uint64_t count, int type, int op, char *why)
{
    if (type < 0 || type >= TYPES || op < 0 || op >= OPERATIONS) {
        snprintf(why, CAUSE_BYTES, "unknown type or operation");
        return OUTCOME_MISMATCH;
    }
    if (lanes_usable(group->lanes) == 0) {
        snprintf(why, CAUSE_BYTES, "%s", group->lanes->reason);
        return OUTCOME_REDO;
    }
    enum outcome outcome = lanes_allreduce(group->lanes, send, recv, count, type, op);
    snprintf(why, CAUSE_BYTES, "%s", outcome == OUTCOME_DONE ? "" : group->lanes->reason);
    return outcome;
}

API int fasthvd_lanes_of(const struct fasthvd *group) { return lanes_usable(group->lanes); }
API int fasthvd_hosts_of(const struct fasthvd *group) { return (int)group->lanes->hosts; }
/* Use the first k lanes only; every rank at the same point. */
API void fasthvd_limit(struct fasthvd *group, int k) { group->lanes->limit = k; }

API void fasthvd_close(struct fasthvd *group)
{
    lanes_close(group->lanes);
    free(group);
}

/* Process number of lane i of this host; 0 where this rank is not its leader, or the lane is no more. */
API int fasthvd_lane_pid(const struct fasthvd *group, int i)
{
    return i >= 0 && i < LANES_MAX && group->lanes->ends[i].pidfd >= 0 ? (int)group->lanes->ends[i].pid : 0;
}
