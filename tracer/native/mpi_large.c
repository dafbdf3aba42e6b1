/* The same calls with counts of 64 bits (MPI 4): mpi4py below MPICH makes its calls through them. */
#define _GNU_SOURCE
#include "mpi_narrow.h"

#define NEXT_LARGE(type, name, narrow)                               \
    static _Atomic(type) cached;                                     \
    type next = atomic_load_explicit(&cached, memory_order_relaxed); \
    if (!next) {                                                     \
        next = (type)mpi_next(name);                                 \
        if (!next) next = narrow;                                    \
        atomic_store(&cached, next);                                 \
    }

static uint64_t sum_counts(const large *counts, mpi_handle comm) {
    uint64_t total = 0;
    for (int i = 0, size = vsk_comm_size(comm); counts && i < size; i++) total += (uint64_t)counts[i];
    return total;
}

typedef int (*allreduce_t)(const void *, void *, large, mpi_handle, mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Allreduce_c(const void *send, void *receive, large count, mpi_handle type, mpi_handle op,
                               mpi_handle comm) {
    NEXT_LARGE(allreduce_t, "MPI_Allreduce_c", narrow_allreduce)
    if (!vsk_ready()) return next(send, receive, count, type, op, comm);
    struct call call = {.which = VSK_ALLREDUCE, .bytes = vsk_bytes_of((uint64_t)count, type), .type = type, .op = op,
                        .comm = comm, .flags = vsk_in_place(send)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, receive, count, type, op, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*bcast_t)(void *, large, mpi_handle, int, mpi_handle);
VSK_PUBLIC int MPI_Bcast_c(void *buffer, large count, mpi_handle type, int root, mpi_handle comm) {
    NEXT_LARGE(bcast_t, "MPI_Bcast_c", narrow_bcast)
    if (!vsk_ready()) return next(buffer, count, type, root, comm);
    struct call call = {.which = VSK_BCAST, .bytes = vsk_bytes_of((uint64_t)count, type), .type = type, .comm = comm,
                        .root = (unsigned)root};
    uint64_t start = vsk_call_begin(&call);
    int status = next(buffer, count, type, root, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*allgather_t)(const void *, large, mpi_handle, void *, large, mpi_handle, mpi_handle);

static int traced_allgather(allgather_t next, enum vsk_call which, const void *send, large send_count,
                            mpi_handle send_type, void *receive, large count, mpi_handle type, mpi_handle comm) {
    if (!vsk_ready()) return next(send, send_count, send_type, receive, count, type, comm);
    uint64_t times = which == VSK_ALLTOALL ? (uint64_t)vsk_comm_size(comm) : 1; /* alltoall counts are per peer */
    struct call call = {.which = which, .type = type, .comm = comm, .flags = vsk_in_place(send),
                        .bytes = times * vsk_bytes_of((uint64_t)count, type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, count, type, comm);
    vsk_call_end(&call, start);
    return status;
}

VSK_PUBLIC int MPI_Allgather_c(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                               mpi_handle type, mpi_handle comm) {
    NEXT_LARGE(allgather_t, "MPI_Allgather_c", narrow_allgather)
    return traced_allgather(next, VSK_ALLGATHER, send, send_count, send_type, receive, count, type, comm);
}

VSK_PUBLIC int MPI_Alltoall_c(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                              mpi_handle type, mpi_handle comm) {
    NEXT_LARGE(allgather_t, "MPI_Alltoall_c", narrow_alltoall)
    return traced_allgather(next, VSK_ALLTOALL, send, send_count, send_type, receive, count, type, comm);
}

typedef int (*allgatherv_t)(const void *, large, mpi_handle, void *, const large *, const large *, mpi_handle,
                            mpi_handle);
VSK_PUBLIC int MPI_Allgatherv_c(const void *send, large send_count, mpi_handle send_type, void *receive,
                                const large *counts, const large *places, mpi_handle type, mpi_handle comm) {
    NEXT_LARGE(allgatherv_t, "MPI_Allgatherv_c", narrow_allgatherv)
    if (!vsk_ready()) return next(send, send_count, send_type, receive, counts, places, type, comm);
    struct call call = {.which = VSK_ALLGATHERV, .type = type, .comm = comm, .flags = vsk_in_place(send),
                        .bytes = vsk_bytes_of(sum_counts(counts, comm), type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, counts, places, type, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*reduce_scatter_t)(const void *, void *, const large *, mpi_handle, mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Reduce_scatter_c(const void *send, void *receive, const large *counts, mpi_handle type,
                                    mpi_handle op, mpi_handle comm) {
    NEXT_LARGE(reduce_scatter_t, "MPI_Reduce_scatter_c", narrow_reduce_scatter)
    if (!vsk_ready()) return next(send, receive, counts, type, op, comm);
    struct call call = {.which = VSK_REDUCE_SCATTER, .type = type, .op = op, .comm = comm,
                        .flags = vsk_in_place(send), .bytes = vsk_bytes_of(sum_counts(counts, comm), type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, receive, counts, type, op, comm);
    vsk_call_end(&call, start);
    return status;
}
