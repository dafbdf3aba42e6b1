#define _GNU_SOURCE
#include "mpi_narrow.h"

#include <limits.h>
#include <stdlib.h>

#define MPI_ERR_COUNT 2

static int fits(large count) { return count >= INT_MIN && count <= INT_MAX; }

/* One of each rank's numbers as int; NULL when one does not fit, or without memory. To be freed. */
static int *narrowed(const large *numbers, mpi_handle comm) {
    int size = vsk_comm_size(comm);
    int *narrow = calloc((size_t)size, sizeof *narrow);
    for (int i = 0; narrow && i < size; i++) {
        if (!fits(numbers[i])) {
            free(narrow);
            return NULL;
        }
        narrow[i] = (int)numbers[i];
    }
    return narrow;
}

typedef int (*allreduce_t)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle);
int narrow_allreduce(const void *send, void *receive, large count, mpi_handle type, mpi_handle op, mpi_handle comm) {
    NEXT(allreduce_t, "MPI_Allreduce")
    return fits(count) ? next(send, receive, (int)count, type, op, comm) : MPI_ERR_COUNT;
}

typedef int (*bcast_t)(void *, int, mpi_handle, int, mpi_handle);
int narrow_bcast(void *buffer, large count, mpi_handle type, int root, mpi_handle comm) {
    NEXT(bcast_t, "MPI_Bcast")
    return fits(count) ? next(buffer, (int)count, type, root, comm) : MPI_ERR_COUNT;
}

typedef int (*allgather_t)(const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle);
int narrow_allgather(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                     mpi_handle type, mpi_handle comm) {
    NEXT(allgather_t, "MPI_Allgather")
    if (!fits(send_count) || !fits(count)) return MPI_ERR_COUNT;
    return next(send, (int)send_count, send_type, receive, (int)count, type, comm);
}

int narrow_alltoall(const void *send, large send_count, mpi_handle send_type, void *receive, large count,
                    mpi_handle type, mpi_handle comm) {
    NEXT(allgather_t, "MPI_Alltoall")
    if (!fits(send_count) || !fits(count)) return MPI_ERR_COUNT;
    return next(send, (int)send_count, send_type, receive, (int)count, type, comm);
}

typedef int (*allgatherv_t)(const void *, int, mpi_handle, void *, const int *, const int *, mpi_handle, mpi_handle);
int narrow_allgatherv(const void *send, large send_count, mpi_handle send_type, void *receive, const large *counts,
                      const large *places, mpi_handle type, mpi_handle comm) {
    NEXT(allgatherv_t, "MPI_Allgatherv")
    int *narrow_counts = narrowed(counts, comm), *narrow_places = narrowed(places, comm);
    int status = MPI_ERR_COUNT;
    if (narrow_counts && narrow_places && fits(send_count))
        status = next(send, (int)send_count, send_type, receive, narrow_counts, narrow_places, type, comm);
    free(narrow_counts);
    free(narrow_places);
    return status;
}

typedef int (*reduce_scatter_t)(const void *, void *, const int *, mpi_handle, mpi_handle, mpi_handle);
int narrow_reduce_scatter(const void *send, void *receive, const large *counts, mpi_handle type, mpi_handle op,
                          mpi_handle comm) {
    NEXT(reduce_scatter_t, "MPI_Reduce_scatter")
    int *narrow_counts = narrowed(counts, comm);
    int status = narrow_counts ? next(send, receive, narrow_counts, type, op, comm) : MPI_ERR_COUNT;
    free(narrow_counts);
    return status;
}
