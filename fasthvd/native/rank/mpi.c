#define _GNU_SOURCE
#include "mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct mpi library;
static pthread_once_t resolved = PTHREAD_ONCE_INIT;

static void resolve(void)
{
    struct mpi *m = &library;
    const struct {
        void *into;
        const char *name;
    } names[] = {
        {&m->allreduce, "MPI_Allreduce"},
        {&m->allreduce_c, "MPI_Allreduce_c"},
        {&m->init, "MPI_Init"},
        {&m->init_thread, "MPI_Init_thread"},
        {&m->finalize, "MPI_Finalize"},
        {&m->comm_free, "MPI_Comm_free"},
        {&m->comm_disconnect, "MPI_Comm_disconnect"},
        {&m->type_contiguous, "MPI_Type_contiguous"},
        {&m->type_free, "MPI_Type_free"},
        {&m->op_create, "MPI_Op_create"},
        {&m->op_free, "MPI_Op_free"},
        {&m->rank, "PMPI_Comm_rank"},
        {&m->size, "PMPI_Comm_size"},
        {&m->compare, "PMPI_Comm_compare"},
        {&m->split, "PMPI_Comm_split"},
        {&m->test_inter, "PMPI_Comm_test_inter"},
        {&m->group, "PMPI_Comm_group"},
        {&m->group_free, "PMPI_Group_free"},
        {&m->translate, "PMPI_Group_translate_ranks"},
        {&m->create_keyval, "PMPI_Comm_create_keyval"},
        {&m->set_attribute, "PMPI_Comm_set_attr"},
        {&m->get_attribute, "PMPI_Comm_get_attr"},
        {&m->free, "PMPI_Comm_free"},
        {&m->isend, "PMPI_Isend"},
        {&m->irecv, "PMPI_Irecv"},
        {&m->test, "PMPI_Test"},
        {&m->cancel, "PMPI_Cancel"},
        {&m->request_free, "PMPI_Request_free"},
        {&m->allgather, "PMPI_Allgather"},
        {&m->own_allreduce, "PMPI_Allreduce"},
        {&m->abort, "PMPI_Abort"},
        {&m->call_errhandler, "PMPI_Comm_call_errhandler"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *at = mpi_next(names[i].name);
        memcpy(names[i].into, &at, sizeof at);
    }
    if (mpi_next("PMPI_Allreduce_c") == NULL) /* another wrapper may have it, but not MPI itself */
        m->allreduce_c = NULL;
    mpi_abi_load(&m->abi);
    m->world = m->abi.constant[K_COMM_WORLD];
    m->byte = m->abi.constant[K_BYTE];
}

struct mpi *mpi_library(void)
{
    pthread_once(&resolved, resolve);
    return &library;
}

bool mpi_usable(const struct mpi *mpi)
{
    return mpi->abi.family != MPI_FAMILY_NONE && mpi->rank && mpi->size && mpi->compare && mpi->split && mpi->free && mpi->test_inter &&
           mpi->group && mpi->group_free && mpi->translate && mpi->create_keyval && mpi->set_attribute && mpi->get_attribute && mpi->isend &&
           mpi->irecv && mpi->test && mpi->cancel && mpi->request_free && mpi->allgather && mpi->own_allreduce && mpi->abort &&
           mpi->call_errhandler;
}

mpi_handle mpi_clean(const struct mpi *mpi, mpi_handle handle)
{
    return mpi->abi.family == MPI_FAMILY_MPICH ? (uint32_t)handle : handle;
}

mpi_handle mpi_at(const struct mpi *mpi, const mpi_handle *handle)
{
    return mpi->abi.family == MPI_FAMILY_MPICH ? *(const uint32_t *)handle : *handle;
}
