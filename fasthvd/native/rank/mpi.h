/* The MPI library of this process, without its header and without linking it: found when it is first used. Handles
 * are taken as words: a pointer in Open MPI, a 32-bit number in MPICH, the same registers either way. */
#ifndef FASTHVD_MPI_H
#define FASTHVD_MPI_H
#include "../../../tracer/native/mpi_abi.h"
#include "../common/protocol.h"

#include <stdbool.h>
#include <stdint.h>

enum { MPI_SUCCESS_ = 0, MPI_IDENT_ = 0, MPI_CONGRUENT_ = 1, MPI_ERR_COUNT_ = 2, MPI_UNDEFINED_ = -32766 };

typedef int allreduce_function(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle);
typedef int allreduce_c_function(const void *, void *, int64_t, mpi_handle, mpi_handle, mpi_handle); /* MPI_Count */
typedef int copy_attribute_function(mpi_handle, int, void *, void *, void *, int *);
typedef int delete_attribute_function(mpi_handle, int, void *, void *);

struct mpi {
    struct mpi_abi abi;
    mpi_handle world, byte;
    /* the next wrapper of each name, or the library itself */
    allreduce_function *allreduce;
    allreduce_c_function *allreduce_c; /* NULL in an MPI before 4.0, and in Open MPI 5 */
    int (*init)(int *, char ***);
    int (*init_thread)(int *, char ***, int, int *);
    int (*finalize)(void);
    int (*comm_free)(mpi_handle *);
    int (*comm_disconnect)(mpi_handle *);
    int (*type_contiguous)(int, mpi_handle, mpi_handle *);
    int (*type_free)(mpi_handle *);
    int (*op_create)(void *, int, mpi_handle *);
    int (*op_free)(mpi_handle *);
    /* for the lanes' own messages: never seen by other wrappers */
    int (*rank)(mpi_handle, int *);
    int (*size)(mpi_handle, int *);
    int (*compare)(mpi_handle, mpi_handle, int *);
    int (*split)(mpi_handle, int, int, mpi_handle *);
    int (*test_inter)(mpi_handle, int *);
    int (*group)(mpi_handle, mpi_handle *);
    int (*group_free)(mpi_handle *);
    int (*translate)(mpi_handle, int, const int *, mpi_handle, int *);
    int (*create_keyval)(copy_attribute_function *, delete_attribute_function *, int *, void *);
    int (*set_attribute)(mpi_handle, int, void *);
    int (*get_attribute)(mpi_handle, int, void *, int *);
    int (*free)(mpi_handle *);
    int (*isend)(const void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *);
    int (*irecv)(void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *);
    int (*test)(mpi_handle *, int *, void *);
    int (*cancel)(mpi_handle *);
    int (*request_free)(mpi_handle *);
    int (*allgather)(const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle);
    allreduce_function *own_allreduce;
    int (*abort)(mpi_handle, int);
    int (*call_errhandler)(mpi_handle, int);
};

/* The process's MPI; never NULL once a wrapper was entered. */
struct mpi *mpi_library(void);
/* True when everything needed for lanes was found. */
bool mpi_usable(const struct mpi *mpi);
/* A handle as this library compares it, and as it lies in memory. */
mpi_handle mpi_clean(const struct mpi *mpi, mpi_handle handle);
mpi_handle mpi_at(const struct mpi *mpi, const mpi_handle *handle);

/* types.c: MPI's handles in the lanes' words; false: not one that lanes can do. */
bool mpi_element_type(mpi_handle type, enum element_type *out);
bool mpi_operation(mpi_handle op, enum element_type type, enum operation *out);
void mpi_note_type(mpi_handle type, bool two_bytes);
void mpi_note_operation(mpi_handle op, const void *function);
#endif
