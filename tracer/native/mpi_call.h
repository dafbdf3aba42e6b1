/* One MPI call on its way to the real one: what mpi.c and mpi_large.c share. */
#ifndef VSKETCHDLC_MPI_CALL_H
#define VSKETCHDLC_MPI_CALL_H

#include "mpi_abi.h"
#include "vsketch.h"

#define MPI_ERR_OTHER 16
#define NO_TYPE ((mpi_handle)-1)

struct call {
    enum vsk_call which;
    uint64_t bytes;
    mpi_handle type, op, comm;
    unsigned root, flags;
    uint32_t number, comm_number; /* filled by vsk_call_begin() */
    int wanted;
};

/* The next implementation of the function, looked up once. */
#define NEXT(type, name)                                             \
    static _Atomic(type) cached;                                     \
    type next = atomic_load_explicit(&cached, memory_order_relaxed); \
    if (!next) {                                                     \
        next = (type)mpi_next(name);                                 \
        if (!next) return MPI_ERR_OTHER;                             \
        atomic_store(&cached, next);                                 \
    }

/* Start time of a call. Calls are numbered per communicator even while nothing is recorded, so that the
 * same number means the same collective on every rank. */
uint64_t vsk_call_begin(struct call *call);
void vsk_call_end(const struct call *call, uint64_t start);

int vsk_comm_size(mpi_handle comm);
unsigned vsk_in_place(const void *buffer); /* VSK_FLAG_IN_PLACE or 0 */
uint64_t vsk_bytes_of(uint64_t count, mpi_handle type);

#endif
