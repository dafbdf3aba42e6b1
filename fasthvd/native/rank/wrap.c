/* The MPI functions that libfasthvd.so stands in front of. Inert unless FASTHVD_AUX is set and MPI is initialised. */
#define _GNU_SOURCE
#include "communicators.h"
#include "world.h"

#include <limits.h>

#define API __attribute__((visibility("default")))
enum { MPI_ERR_INTERN_ = 17 };

API int MPI_Init(int *argc, char ***argv)
{
    struct mpi *mpi = mpi_library();
    int status = mpi->init != 0 ? mpi->init(argc, argv) : MPI_ERR_INTERN_;
    if (status == MPI_SUCCESS_)
        world_start();
    return status;
}

API int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    struct mpi *mpi = mpi_library();
    int status = mpi->init_thread != 0 ? mpi->init_thread(argc, argv, required, provided) : MPI_ERR_INTERN_;
    if (status == MPI_SUCCESS_)
        world_start();
    return status;
}

API int MPI_Finalize(void)
{
    world_finish();
    return mpi_library()->finalize();
}

API int MPI_Allreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm)
{
    int status;
    if (world_allreduce(send, recv, count, type, op, comm, &status))
        return status;
    status = mpi_library()->allreduce(send, recv, count, type, op, comm);
    if (status == MPI_SUCCESS_)
        world_after_mpi(recv, count, type, op);
    return status;
}

/* Only in MPI 4; who asks whether it is there (mpi4py) finds it in any MPI, so it must work with any. */
API int MPI_Allreduce_c(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op, mpi_handle comm)
{
    struct mpi *mpi = mpi_library();
    int status = MPI_ERR_COUNT_;
    if (world_allreduce(send, recv, count, type, op, comm, &status))
        return status;
    if (mpi->allreduce_c != 0)
        status = mpi->allreduce_c(send, recv, count, type, op, comm);
    else if (count <= INT_MAX)
        status = mpi->allreduce(send, recv, (int)count, type, op, comm);
    else
        mpi->call_errhandler(comm, MPI_ERR_COUNT_);
    if (status == MPI_SUCCESS_)
        world_after_mpi(recv, count, type, op);
    return status;
}

API int MPI_Comm_free(mpi_handle *comm)
{
    struct mpi *mpi = mpi_library();
    communicator_drop(mpi_at(mpi, comm));
    return mpi->comm_free(comm);
}

API int MPI_Comm_disconnect(mpi_handle *comm)
{
    struct mpi *mpi = mpi_library();
    communicator_drop(mpi_at(mpi, comm));
    return mpi->comm_disconnect(comm);
}

/* Horovod's float16 is two bytes with an operation of its own: remember both as they are made, forget them when freed. */
API int MPI_Type_contiguous(int count, mpi_handle old, mpi_handle *type)
{
    struct mpi *mpi = mpi_library();
    int status = mpi->type_contiguous(count, old, type);
    if (status == MPI_SUCCESS_)
        mpi_note_type(mpi_at(mpi, type), count == 2 && mpi_clean(mpi, old) == mpi->byte);
    return status;
}

API int MPI_Type_free(mpi_handle *type)
{
    struct mpi *mpi = mpi_library();
    mpi_note_type(mpi_at(mpi, type), false);
    return mpi->type_free(type);
}

API int MPI_Op_create(void *function, int commutes, mpi_handle *op)
{
    struct mpi *mpi = mpi_library();
    int status = mpi->op_create(function, commutes, op);
    if (status == MPI_SUCCESS_)
        mpi_note_operation(mpi_at(mpi, op), function);
    return status;
}

API int MPI_Op_free(mpi_handle *op)
{
    struct mpi *mpi = mpi_library();
    mpi_note_operation(mpi_at(mpi, op), 0);
    return mpi->op_free(op);
}
