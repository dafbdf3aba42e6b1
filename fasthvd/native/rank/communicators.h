/* Which lane group serves a communicator. What is known of one hangs on it as an MPI attribute: it goes when MPI frees
 * the communicator, whoever does that, and handles that MPI gives out again are never confused. */
#ifndef FASTHVD_COMMUNICATORS_H
#define FASTHVD_COMMUNICATORS_H
#include "counters.h"
#include "groups.h"

/* After the first group was started. `hosts_of_ranks`: of all ranks of COMM_WORLD; kept. */
bool communicators_start(const struct settings *settings, const uint32_t *hosts_of_ranks);
/* The group for this large allreduce, the same on all ranks of `comm`; NULL: none, and why. Collective over `comm`: on
 * some calls the ranks agree here to start a group. */
struct group *communicator_lanes(mpi_handle comm, enum passed *why);
/* Before MPI frees it, collective. */
void communicator_drop(mpi_handle comm);
#endif
