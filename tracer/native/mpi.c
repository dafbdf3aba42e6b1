/* The MPI calls of Horovod (reference 3.1), each one record around the real call.
 *
 * Stacks with other preloaded libraries that wrap the same calls: the real one is the next in search order.
 * A wrapper inside a wrapper (a library that implements one call by others) is recorded once, outermost.
 */
#define _GNU_SOURCE
#include "mpi_call.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COMM_ROOM 64

struct communicator {
    mpi_handle handle;
    uint32_t calls;
};

static struct communicator communicators[COMM_ROOM];
static _Atomic int communicator_count;
static pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
static VSK_TLS int depth;

static const struct mpi_abi *abi(void) {
    static struct mpi_abi loaded;
    static _Atomic int state;
    if (atomic_load_explicit(&state, memory_order_acquire) == 0) {
        pthread_mutex_lock(&comm_lock);
        if (atomic_load(&state) == 0) {
            mpi_abi_load(&loaded);
            atomic_store_explicit(&state, 1, memory_order_release);
        }
        pthread_mutex_unlock(&comm_lock);
    }
    return &loaded;
}

static int type_size(mpi_handle type) {
    static int (*size_of)(mpi_handle, int *);
    if (!size_of) size_of = (int (*)(mpi_handle, int *))mpi_next("PMPI_Type_size");
    int bytes = 0;
    if (size_of) size_of(type, &bytes);
    return bytes;
}

static int comm_value(const char *function, mpi_handle comm) {
    int (*query)(mpi_handle, int *) = (int (*)(mpi_handle, int *))mpi_next(function);
    int value = 0;
    if (query) query(comm, &value);
    return value;
}

int vsk_comm_size(mpi_handle comm) {
    static int (*size_of)(mpi_handle, int *);
    if (!size_of) size_of = (int (*)(mpi_handle, int *))mpi_next("PMPI_Comm_size");
    int size = 0;
    if (size_of) size_of(comm, &size);
    return size;
}

static unsigned communicator(mpi_handle comm) {
    int count = atomic_load_explicit(&communicator_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (mpi_same(abi(), communicators[i].handle, comm)) return (unsigned)i;
    if (count == COMM_ROOM) return COMM_ROOM - 1;
    pthread_mutex_lock(&comm_lock);
    int place = atomic_load(&communicator_count);
    if (place < COMM_ROOM) {
        communicators[place] = (struct communicator){comm, 0};
        atomic_store_explicit(&communicator_count, place + 1, memory_order_release);
    } else {
        place = COMM_ROOM - 1;
    }
    pthread_mutex_unlock(&comm_lock);
    uint64_t now = vsk_now();
    vsk_record(VSK_COMM, now, now, 0, (unsigned)place, (uint64_t)comm_value("PMPI_Comm_size", comm),
               (uint64_t)comm_value("PMPI_Comm_rank", comm));
    return (unsigned)place;
}

static unsigned type_number(mpi_handle type) {
    for (unsigned i = K_BYTE; i <= K_C_BOOL; i++)
        if (mpi_is(abi(), type, (enum mpi_constant)i)) return i;
    return 31;
}

static unsigned op_number(mpi_handle op) {
    for (unsigned i = K_SUM; i <= K_BXOR; i++)
        if (mpi_is(abi(), op, (enum mpi_constant)i)) return i - K_SUM;
    return 15;
}

uint64_t vsk_call_begin(struct call *call) {
    if (depth++ || !vsk_ready()) return 0;
    call->comm_number = communicator(call->comm);
    call->number = communicators[call->comm_number].calls++;
    if (call->number % 64 == 0) vsk_gather_look();
    call->wanted = vsk_wanted_now();
    return call->wanted ? vsk_now() : 0;
}

void vsk_call_end(const struct call *call, uint64_t start) {
    depth--;
    if (!call->wanted) return;
    uint64_t stop = vsk_now();
    unsigned type = call->type == NO_TYPE ? 31 : type_number(call->type);
    unsigned op = call->op ? op_number(call->op) : 15;
    vsk_record(VSK_MPI, start, stop, call->flags, call->which | type << 5 | op << 10, call->bytes,
               call->number | (uint64_t)(call->root & 0xffff) << 32 | (uint64_t)call->comm_number << 48);
}

static uint64_t sum_counts(const int *counts, mpi_handle comm) {
    uint64_t total = 0;
    for (int i = 0, size = vsk_comm_size(comm); counts && i < size; i++) total += (uint64_t)counts[i];
    return total;
}

unsigned vsk_in_place(const void *buffer) { return buffer == abi()->in_place ? VSK_FLAG_IN_PLACE : 0; }

uint64_t vsk_bytes_of(uint64_t count, mpi_handle type) { return count * (uint64_t)type_size(type); }

typedef int (*allreduce_t)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Allreduce(const void *send, void *receive, int count, mpi_handle type, mpi_handle op,
                             mpi_handle comm) {
    NEXT(allreduce_t, "MPI_Allreduce")
    if (!vsk_ready()) return next(send, receive, count, type, op, comm);
    struct call call = {.which = VSK_ALLREDUCE, .bytes = vsk_bytes_of((uint64_t)count, type), .type = type, .op = op,
                        .comm = comm, .flags = vsk_in_place(send)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, receive, count, type, op, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*bcast_t)(void *, int, mpi_handle, int, mpi_handle);
VSK_PUBLIC int MPI_Bcast(void *buffer, int count, mpi_handle type, int root, mpi_handle comm) {
    NEXT(bcast_t, "MPI_Bcast")
    if (!vsk_ready()) return next(buffer, count, type, root, comm);
    struct call call = {.which = VSK_BCAST, .bytes = vsk_bytes_of((uint64_t)count, type), .type = type, .comm = comm,
                        .root = (unsigned)root};
    uint64_t start = vsk_call_begin(&call);
    int status = next(buffer, count, type, root, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*gather_t)(const void *, int, mpi_handle, void *, int, mpi_handle, int, mpi_handle);
VSK_PUBLIC int MPI_Gather(const void *send, int send_count, mpi_handle send_type, void *receive, int count,
                          mpi_handle type, int root, mpi_handle comm) {
    NEXT(gather_t, "MPI_Gather")
    if (!vsk_ready()) return next(send, send_count, send_type, receive, count, type, root, comm);
    unsigned flags = vsk_in_place(send);
    struct call call = {.which = VSK_GATHER, .type = flags ? type : send_type, .comm = comm, .root = (unsigned)root,
                        .bytes = flags ? vsk_bytes_of((uint64_t)count, type) : vsk_bytes_of((uint64_t)send_count, send_type),
                        .flags = flags};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, count, type, root, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*gatherv_t)(const void *, int, mpi_handle, void *, const int *, const int *, mpi_handle, int, mpi_handle);
VSK_PUBLIC int MPI_Gatherv(const void *send, int send_count, mpi_handle send_type, void *receive, const int *counts,
                           const int *places, mpi_handle type, int root, mpi_handle comm) {
    NEXT(gatherv_t, "MPI_Gatherv")
    if (!vsk_ready()) return next(send, send_count, send_type, receive, counts, places, type, root, comm);
    unsigned flags = vsk_in_place(send);
    struct call call = {.which = VSK_GATHERV, .type = flags ? type : send_type, .comm = comm, .root = (unsigned)root,
                        .bytes = flags ? 0 : vsk_bytes_of((uint64_t)send_count, send_type), .flags = flags};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, counts, places, type, root, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*allgather_t)(const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle);

static int traced_allgather(allgather_t next, enum vsk_call which, const void *send, int send_count,
                            mpi_handle send_type, void *receive, int count, mpi_handle type, mpi_handle comm) {
    if (!vsk_ready()) return next(send, send_count, send_type, receive, count, type, comm);
    uint64_t times = which == VSK_ALLTOALL ? (uint64_t)vsk_comm_size(comm) : 1; /* alltoall counts are per peer */
    struct call call = {.which = which, .type = type, .comm = comm, .flags = vsk_in_place(send),
                        .bytes = times * vsk_bytes_of((uint64_t)count, type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, count, type, comm);
    vsk_call_end(&call, start);
    return status;
}

VSK_PUBLIC int MPI_Allgather(const void *send, int send_count, mpi_handle send_type, void *receive, int count,
                             mpi_handle type, mpi_handle comm) {
    NEXT(allgather_t, "MPI_Allgather")
    return traced_allgather(next, VSK_ALLGATHER, send, send_count, send_type, receive, count, type, comm);
}

VSK_PUBLIC int MPI_Alltoall(const void *send, int send_count, mpi_handle send_type, void *receive, int count,
                            mpi_handle type, mpi_handle comm) {
    NEXT(allgather_t, "MPI_Alltoall")
    return traced_allgather(next, VSK_ALLTOALL, send, send_count, send_type, receive, count, type, comm);
}

typedef int (*allgatherv_t)(const void *, int, mpi_handle, void *, const int *, const int *, mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Allgatherv(const void *send, int send_count, mpi_handle send_type, void *receive,
                              const int *counts, const int *places, mpi_handle type, mpi_handle comm) {
    NEXT(allgatherv_t, "MPI_Allgatherv")
    if (!vsk_ready()) return next(send, send_count, send_type, receive, counts, places, type, comm);
    /* The whole result: what every rank ends up with. */
    struct call call = {.which = VSK_ALLGATHERV, .type = type, .comm = comm, .flags = vsk_in_place(send),
                        .bytes = vsk_bytes_of(sum_counts(counts, comm), type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_count, send_type, receive, counts, places, type, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*alltoallv_t)(const void *, const int *, const int *, mpi_handle, void *, const int *, const int *,
                           mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Alltoallv(const void *send, const int *send_counts, const int *send_places, mpi_handle send_type,
                             void *receive, const int *counts, const int *places, mpi_handle type, mpi_handle comm) {
    NEXT(alltoallv_t, "MPI_Alltoallv")
    if (!vsk_ready()) return next(send, send_counts, send_places, send_type, receive, counts, places, type, comm);
    unsigned flags = vsk_in_place(send);
    struct call call = {.which = VSK_ALLTOALLV, .type = type, .comm = comm, .flags = flags,
                        .bytes = flags ? vsk_bytes_of(sum_counts(counts, comm), type)
                                       : vsk_bytes_of(sum_counts(send_counts, comm), send_type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, send_counts, send_places, send_type, receive, counts, places, type, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*reduce_scatter_t)(const void *, void *, const int *, mpi_handle, mpi_handle, mpi_handle);
VSK_PUBLIC int MPI_Reduce_scatter(const void *send, void *receive, const int *counts, mpi_handle type, mpi_handle op,
                                  mpi_handle comm) {
    NEXT(reduce_scatter_t, "MPI_Reduce_scatter")
    if (!vsk_ready()) return next(send, receive, counts, type, op, comm);
    struct call call = {.which = VSK_REDUCE_SCATTER, .type = type, .op = op, .comm = comm, .flags = vsk_in_place(send),
                        .bytes = vsk_bytes_of(sum_counts(counts, comm), type)};
    uint64_t start = vsk_call_begin(&call);
    int status = next(send, receive, counts, type, op, comm);
    vsk_call_end(&call, start);
    return status;
}

typedef int (*barrier_t)(mpi_handle);
VSK_PUBLIC int MPI_Barrier(mpi_handle comm) {
    NEXT(barrier_t, "MPI_Barrier")
    if (!vsk_ready()) return next(comm);
    struct call call = {.which = VSK_BARRIER, .type = NO_TYPE, .comm = comm};
    uint64_t start = vsk_call_begin(&call);
    int status = next(comm);
    vsk_call_end(&call, start);
    return status;
}

static void initialised(void) {
    if (!vsk_ready() || abi()->family == MPI_FAMILY_NONE) return;
    mpi_handle world = abi()->constant[K_COMM_WORLD];
    vsk_identity("rank=%d\nsize=%d\nmpi=%s\nmpi_tid=%ld", comm_value("PMPI_Comm_rank", world),
                 comm_value("PMPI_Comm_size", world),
                 abi()->family == MPI_FAMILY_MPICH ? "MPICH" : "Open MPI", syscall(SYS_gettid));
    vsk_gather_announce();
}

typedef int (*init_t)(int *, char ***);
VSK_PUBLIC int MPI_Init(int *argc, char ***argv) {
    NEXT(init_t, "MPI_Init")
    vsk_join();
    int status = next(argc, argv);
    if (status == 0 && depth == 0) initialised();
    return status;
}

typedef int (*init_thread_t)(int *, char ***, int, int *);
VSK_PUBLIC int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    NEXT(init_thread_t, "MPI_Init_thread")
    vsk_join();
    depth++;
    int status = next(argc, argv, required, provided);
    depth--;
    if (status == 0 && depth == 0) initialised();
    return status;
}

typedef int (*finalize_t)(void);
VSK_PUBLIC int MPI_Finalize(void) {
    NEXT(finalize_t, "MPI_Finalize")
    if (vsk_ready()) {
        depth++;
        vsk_gather_at_finalize();
        depth--;
    }
    return next();
}
