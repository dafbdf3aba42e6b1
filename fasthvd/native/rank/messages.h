/* The ranks' own small messages over MPI: point to point, with time limits, never a blocking call that could hang. */
#ifndef FASTHVD_MESSAGES_H
#define FASTHVD_MESSAGES_H
#include "lanes.h"
#include "mpi.h"

/* All ranks of COMM_WORLD with the same digest? False with the reason: a rank that has no libfasthvd.so never answers,
 * so this must not be a collective call. The same answer on every rank that takes part. */
bool messages_agree(uint64_t digest, int64_t timeout_ns, char why[CAUSE_BYTES]);

/* A transport over a private communicator of the ranks of `comm` (collective). */
struct mpi_group {
    mpi_handle comm;
    int rank, size;
};
bool messages_open(mpi_handle comm, struct mpi_group *group);
void messages_close(struct mpi_group *group);
struct transport messages_transport(struct mpi_group *group);
#endif
