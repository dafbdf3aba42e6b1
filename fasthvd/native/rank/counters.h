/* What the lanes carried, what passed to MPI and why; told at the end with --stats (a table) and --json (for programs). */
#ifndef FASTHVD_COUNTERS_H
#define FASTHVD_COUNTERS_H
#include "lanes.h"
#include "messages.h"

/* Why an allreduce did not go over the lanes. CONTROL: Horovod's own bit vectors, no gradients. */
enum passed {
    PASSED_CONTROL, PASSED_SMALL, PASSED_TYPE, PASSED_OPERATION,
    PASSED_COMMUNICATOR,     /* never has lanes */
    PASSED_NEW_COMMUNICATOR, /* has none yet */
    PASSED_NO_GROUP,         /* too many others have some */
    PASSED_DEVICE, PASSED_NO_LANES, PASSED_REDONE,
    PASSED_REASONS,
};

/* This rank's calls so far. */
struct tally {
    uint64_t carried_calls, carried_bytes;
    uint64_t calls[PASSED_REASONS], bytes[PASSED_REASONS], largest; /* largest: bytes of the largest call below the threshold */
    uint64_t groups; /* communicators that got lanes of their own, beside the first */
};

void counters_carried(uint64_t bytes);
void counters_passed(enum passed why, uint64_t bytes);
void counters_group(void);
/* Before lanes are closed: what they did is kept, summed by the number of the lane. */
void counters_keep_lanes(const struct lanes *lanes);
void counters_tally(struct tally *tally);
/* Rank 0 tells the lanes of all hosts that were kept and its own calls: as lines if asked for, as JSON to FASTHVD_REPORT or
 * into the file FASTHVD_JSON. `threshold_bytes` < 0: there were no lanes. Collective. */
void counters_finish(struct mpi_group *group, int64_t threshold_bytes, bool as_lines);
#endif
