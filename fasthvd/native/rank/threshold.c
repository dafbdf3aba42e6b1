#define _GNU_SOURCE
#include "threshold.h"

#include "../common/clock.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 16 << 10, ENOUGH_BYTES = 4 << 20, LAST_BYTES = 32 << 20, PLAIN = 3, ROUNDS = 2, IN_A_ROW = 3, LONG_ENOUGH_MS = 100 };
/* A size is worth the lanes when they need this share of MPI's time or less: a tie is theirs. An idle host flatters MPI: in training
 * its thread polls on a core that computes, and its connections' two directions take turns. Where one lane was as quick as MPI here,
 * training steps took 1.00 s over it and 1.21 s over MPI. */
static const double WORTH = 1.03;

struct timing {
    int64_t lanes_ns, mpi_ns;
};

static bool time_once(struct lanes *lanes, struct mpi_group *group, float *data, int64_t bytes, bool over_lanes, int64_t *best_ns)
{
    const struct mpi *mpi = mpi_library();
    uint64_t ballot[2] = {0, 0};
    char why[CAUSE_BYTES];
    if (!lanes->transport.vote(group, ballot, lanes->settings.timeout_ns, why)) /* all start together */
        return false;
    int64_t begin = now_ns();
    bool good = over_lanes ? lanes_allreduce(lanes, data, data, (uint64_t)bytes / 4, T_FLOAT32, OP_SUM) == OUTCOME_DONE
                           : mpi->own_allreduce(mpi->abi.in_place, data, (int)(bytes / 4), mpi->abi.constant[K_FLOAT],
                                                mpi->abi.constant[K_SUM], group->comm) == MPI_SUCCESS_;
    int64_t spent = now_ns() - begin;
    if (spent < *best_ns)
        *best_ns = spent;
    return good;
}

/* A few calls one after the other, as a training makes them: a flow just woken is slower. */
static bool time_in_a_row(struct lanes *lanes, struct mpi_group *group, float *data, int64_t bytes, bool over_lanes, int64_t *best_ns)
{
    bool good = true;
    for (int i = 0; good && i < IN_A_ROW; i++)
        good = time_once(lanes, group, data, bytes, over_lanes, best_ns);
    return good;
}

/* The best of a few rounds on each rank, then the slowest rank's: equal on all of them. */
static bool time_size(struct lanes *lanes, struct mpi_group *group, float *data, int64_t bytes, struct timing *slowest)
{
    struct timing mine = {INT64_MAX, INT64_MAX};
    struct timing *all = calloc((size_t)group->size, sizeof *all);
    bool good = all != NULL;
    for (int i = 0; good && i < ROUNDS; i++)
        good = time_in_a_row(lanes, group, data, bytes, false, &mine.mpi_ns) &&
               time_in_a_row(lanes, group, data, bytes, true, &mine.lanes_ns);
    if (all != NULL && lanes->transport.gather(group, &mine, sizeof mine, all)) {
        *slowest = (struct timing){0, 0};
        for (int i = 0; i < group->size; i++) {
            slowest->lanes_ns = all[i].lanes_ns > slowest->lanes_ns ? all[i].lanes_ns : slowest->lanes_ns;
            slowest->mpi_ns = all[i].mpi_ns > slowest->mpi_ns ? all[i].mpi_ns : slowest->mpi_ns;
        }
    } else {
        good = false;
    }
    free(all);
    return good;
}

static bool slow_network(const struct timing *timing)
{
    return timing->mpi_ns > LONG_ENOUGH_MS * NS_PER_MS || timing->lanes_ns > LONG_ENOUGH_MS * NS_PER_MS;
}

int64_t threshold_measure(struct lanes *lanes, struct mpi_group *group)
{
    float *data = calloc(1, LAST_BYTES);
    int64_t threshold = FIRST_BYTES;
    int worth = 0; /* sizes in a row up to this one */
    /* Where the lanes are not plainly ahead by 4 MiB, as in a fast network with few cores, larger sizes decide. */
    for (int64_t bytes = FIRST_BYTES; data != NULL && bytes <= (worth >= PLAIN ? ENOUGH_BYTES : LAST_BYTES); bytes *= 2) {
        struct timing slowest;
        if (!time_size(lanes, group, data, bytes, &slowest))
            break; /* a lane failed: said already, and the next large call finds out the rest */
        worth = (double)slowest.lanes_ns <= WORTH * (double)slowest.mpi_ns ? worth + 1 : 0;
        if (worth == 0)
            threshold = bytes * 2;
        if (slow_network(&slowest))
            break; /* larger ones take long, and the order is plain by now */
    }
    free(data);
    return threshold;
}
