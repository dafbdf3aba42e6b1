/* The lanes of this MPI process, and which calls go to them. */
#ifndef FASTHVD_WORLD_H
#define FASTHVD_WORLD_H
#include "mpi.h"

void world_start(void);  /* after MPI_Init */
void world_finish(void); /* before MPI_Finalize */
/* True: done over the lanes, `*status` is MPI's return value. False: the caller must call MPI, buffers untouched. */
bool world_allreduce(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op, mpi_handle comm, int *status);
/* MPI has done the call itself: Horovod's control messages tell how many steps there were. */
void world_after_mpi(const void *recv, int64_t count, mpi_handle type, mpi_handle op);
#endif
