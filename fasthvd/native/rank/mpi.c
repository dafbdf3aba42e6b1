#define _GNU_SOURCE
#include "mpi.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct mpi library;
static pthread_once_t resolved = PTHREAD_ONCE_INIT;

/* libmpi may have been loaded with RTLD_LOCAL (mpi4py): then only its own handle knows its names. */
static int keep_if_mpi(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libmpi.so", 9) != 0 && strncmp(name, "libmpich.so", 11) != 0 && strncmp(name, "libmpi_", 7) != 0)
        return 0;
    *(const char **)found = info->dlpi_name;
    return strncmp(name, "libmpi_", 7) != 0;
}

static void *from_library(const char *name)
{
    static void *handle;
    const char *path = NULL;
    if (handle == NULL) {
        dl_iterate_phdr(keep_if_mpi, &path);
        if (path != NULL)
            handle = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    }
    return handle != NULL ? dlsym(handle, name) : NULL;
}

void *mpi_next(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);
    return at != NULL ? at : from_library(name);
}

static void *own(const char *name)
{
    void *at = from_library(name);
    return at != NULL ? at : dlsym(RTLD_NEXT, name);
}

static void resolve(void)
{
    struct mpi *m = &library;
    const struct {
        void *into;
        const char *name;
        bool next;
    } names[] = {
        {&m->allreduce, "MPI_Allreduce", true},
        {&m->init, "MPI_Init", true},
        {&m->init_thread, "MPI_Init_thread", true},
        {&m->finalize, "MPI_Finalize", true},
        {&m->comm_free, "MPI_Comm_free", true},
        {&m->comm_disconnect, "MPI_Comm_disconnect", true},
        {&m->type_contiguous, "MPI_Type_contiguous", true},
        {&m->type_free, "MPI_Type_free", true},
        {&m->op_create, "MPI_Op_create", true},
        {&m->op_free, "MPI_Op_free", true},
        {&m->rank, "PMPI_Comm_rank", false},
        {&m->size, "PMPI_Comm_size", false},
        {&m->compare, "PMPI_Comm_compare", false},
        {&m->dup, "PMPI_Comm_dup", false},
        {&m->free, "PMPI_Comm_free", false},
        {&m->isend, "PMPI_Isend", false},
        {&m->irecv, "PMPI_Irecv", false},
        {&m->test, "PMPI_Test", false},
        {&m->cancel, "PMPI_Cancel", false},
        {&m->request_free, "PMPI_Request_free", false},
        {&m->allgather, "PMPI_Allgather", false},
        {&m->abort, "PMPI_Abort", false},
        {&m->call_errhandler, "PMPI_Comm_call_errhandler", false},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *at = names[i].next ? mpi_next(names[i].name) : own(names[i].name);
        memcpy(names[i].into, &at, sizeof at);
    }
    void *world = own("ompi_mpi_comm_world"), *byte = own("ompi_mpi_byte");
    if (world != NULL && byte != NULL) {
        m->flavour = FLAVOUR_OPEN_MPI;
        m->world = (mpi_handle)world;
        m->byte = (mpi_handle)byte;
        m->in_place = (void *)1;
        m->status_ignore = NULL;
    } else if (own("MPIR_Err_return_comm") != NULL || own("MPIR_F_NeedInit") != NULL || own("MPIX_Comm_revoke") != NULL) {
        m->flavour = FLAVOUR_MPICH;
        m->world = 0x44000000;
        m->byte = 0x4c00010d;
        m->in_place = (void *)-1;
        m->status_ignore = (void *)1;
    }
    mpi_types_load(m);
}

struct mpi *mpi_library(void)
{
    pthread_once(&resolved, resolve);
    return &library;
}

bool mpi_usable(const struct mpi *mpi)
{
    return mpi->flavour != FLAVOUR_UNKNOWN && mpi->rank && mpi->size && mpi->compare && mpi->dup && mpi->isend && mpi->irecv && mpi->test &&
           mpi->cancel && mpi->request_free && mpi->allgather && mpi->abort && mpi->call_errhandler && mpi->free;
}

mpi_handle mpi_clean(const struct mpi *mpi, mpi_handle handle)
{
    return mpi->flavour == FLAVOUR_MPICH ? (uint32_t)handle : handle;
}
