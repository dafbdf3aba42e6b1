/* The calls with 64-bit counts for an MPI that has none (Open MPI 5): as calls with counts of 32 bits. mpi4py asks
 * whether a program has them, finds those of mpi_large.c, and then calls nothing else. */
#ifndef VSKETCHDLC_MPI_NARROW_H
#define VSKETCHDLC_MPI_NARROW_H

#include "mpi_call.h"

typedef int64_t large; /* MPI_Count; MPI_Aint is as wide */

int narrow_allreduce(const void *send, void *receive, large count, mpi_handle type, mpi_handle op, mpi_handle comm);
int narrow_bcast(void *buffer, large count, mpi_handle type, int root, mpi_handle comm);
int narrow_allgather(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                     mpi_handle type, mpi_handle comm);
int narrow_alltoall(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                    mpi_handle type, mpi_handle comm);
int narrow_allgatherv(const void *send, large send_count, mpi_handle send_type, void *receive, const large *counts,
                      const large *places, mpi_handle type, mpi_handle comm);
int narrow_reduce_scatter(const void *send, void *receive, const large *counts, mpi_handle type, mpi_handle op,
                          mpi_handle comm);

#endif
