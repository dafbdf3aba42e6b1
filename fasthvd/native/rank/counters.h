/* What the lanes carried, what passed to MPI and why; printed at the end with --stats. */
#ifndef FASTHVD_COUNTERS_H
#define FASTHVD_COUNTERS_H
#include "lanes.h"
#include "messages.h"

/* Why an allreduce did not go over the lanes. */
enum passed { PASSED_SMALL, PASSED_TYPE, PASSED_OPERATION, PASSED_COMMUNICATOR, PASSED_DEVICE, PASSED_NO_LANES, PASSED_REDONE, PASSED_REASONS };

void counters_carried(uint64_t bytes);
void counters_passed(enum passed why, uint64_t bytes);
/* Says once, on the rank that asks, when long after the start nothing has come that lanes could carry. */
void counters_hint(int64_t threshold_bytes);
/* Rank 0 prints the lanes of all hosts and its own calls. Collective; `lanes` may be NULL on all ranks. */
void counters_print(const struct lanes *lanes, struct mpi_group *group);
#endif
