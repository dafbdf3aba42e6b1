/* From which size on the lanes are worth their start: measured between these hosts, not a constant. */
#ifndef FASTHVD_THRESHOLD_H
#define FASTHVD_THRESHOLD_H
#include "lanes.h"
#include "messages.h"

/* Bytes from which on an allreduce over the lanes was faster than over MPI; the same on all ranks. Collective. */
int64_t threshold_measure(struct lanes *lanes, struct mpi_group *group);
#endif
