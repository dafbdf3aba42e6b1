/* As much of an MPI as the ranks' side of the lanes calls, for two processes of one machine: a program that is checked
 * for races as a whole cannot have a real one below it. Its channels are made before the ranks are forked. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COMMS = 256, KEYVALS = 4, SUCCESS = 0, FAILED = 16 };

struct comm {
    int collective[2], messages[2]; /* one end for each rank */
    void *value[KEYVALS];
    int has[KEYVALS];
};
struct request {
    void *into; /* NULL: done */
    size_t bytes;
    int fd;
};

struct comm ompi_mpi_comm_world;
char ompi_mpi_byte, ompi_mpi_int, ompi_mpi_float, ompi_mpi_op_sum, ompi_mpi_op_min;
static struct comm made[COMMS];
static int rank, next_comm, keyvals;
static int (*deleters[KEYVALS])(void *, int, void *, void *);

static int open_channels(struct comm *comm)
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, comm->collective) == 0 &&
           socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, comm->messages) == 0;
}

/* Before the fork. */
int stand_in_prepare(void)
{
    int good = open_channels(&ompi_mpi_comm_world);
    for (int i = 0; i < COMMS; i++)
        good = good && open_channels(&made[i]);
    return good;
}

void stand_in_rank(int number) { rank = number; }
/* A program that named these would get copies of its own (copy relocation), at other addresses than dlsym tells. */
void *stand_in_world(void) { return &ompi_mpi_comm_world; }
void *stand_in_float(void) { return &ompi_mpi_float; }
void *stand_in_sum(void) { return &ompi_mpi_op_sum; }

static int whole(int writing, int fd, char *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = writing ? write(fd, at, bytes) : read(fd, at, bytes);
        if (n <= 0)
            return FAILED;
        at += n;
        bytes -= (size_t)n;
    }
    return SUCCESS;
}

static int exchange(struct comm *comm, const void *mine, void *theirs, size_t bytes)
{
    int fd = comm->collective[rank];
    int first = rank == 0 ? whole(1, fd, (char *)mine, bytes) : whole(0, fd, theirs, bytes);
    return first != SUCCESS ? first : rank == 0 ? whole(0, fd, theirs, bytes) : whole(1, fd, (char *)mine, bytes);
}

int MPI_Init(int *argc, char ***argv) { return (void)argc, (void)argv, SUCCESS; }
int MPI_Finalize(void) { return SUCCESS; }

int PMPI_Comm_rank(struct comm *comm, int *number) { return (void)comm, *number = rank, SUCCESS; }
int PMPI_Comm_size(struct comm *comm, int *size) { return (void)comm, *size = 2, SUCCESS; }
int PMPI_Comm_test_inter(struct comm *comm, int *between) { return (void)comm, *between = 0, SUCCESS; }
int PMPI_Comm_compare(struct comm *a, struct comm *b, int *answer) { return *answer = a == b ? 0 : 1, SUCCESS; }
int PMPI_Comm_group(struct comm *comm, void **group) { return *group = comm, SUCCESS; }
int PMPI_Group_free(void **group) { return *group = NULL, SUCCESS; }

int PMPI_Group_translate_ranks(void *from, int n, const int *ranks, void *to, int *out)
{
    (void)from, (void)to;
    memcpy(out, ranks, sizeof *ranks * (size_t)n);
    return SUCCESS;
}

/* Rank 0 takes the next channels, as threads of both ranks may be here at once, each with its own `comm`. */
int PMPI_Comm_split(struct comm *comm, int color, int key, struct comm **out)
{
    (void)color, (void)key;
    int taken = rank == 0 ? __atomic_fetch_add(&next_comm, 1, __ATOMIC_RELAXED) : 0, theirs = 0;
    if (exchange(comm, &taken, &theirs, sizeof taken) != SUCCESS)
        return FAILED;
    taken = rank == 0 ? taken : theirs;
    if (taken >= COMMS)
        return FAILED;
    *out = &made[taken];
    return SUCCESS;
}

int PMPI_Comm_free(struct comm **comm)
{
    for (int i = 0; i < KEYVALS; i++)
        if ((*comm)->has[i]) {
            (*comm)->has[i] = 0;
            deleters[i](*comm, i, (*comm)->value[i], NULL);
        }
    *comm = NULL;
    return SUCCESS;
}
int MPI_Comm_free(struct comm **comm) { return PMPI_Comm_free(comm); }

int PMPI_Comm_create_keyval(void *copy, int (*deleter)(void *, int, void *, void *), int *keyval, void *extra)
{
    (void)copy, (void)extra;
    deleters[keyvals] = deleter;
    *keyval = keyvals++;
    return SUCCESS;
}

int PMPI_Comm_set_attr(struct comm *comm, int keyval, void *value)
{
    comm->value[keyval] = value;
    comm->has[keyval] = 1;
    return SUCCESS;
}

int PMPI_Comm_get_attr(struct comm *comm, int keyval, void *value, int *found)
{
    *found = comm->has[keyval];
    if (*found)
        memcpy(value, &comm->value[keyval], sizeof(void *));
    return SUCCESS;
}

int PMPI_Isend(const void *data, int bytes, void *type, int to, int tag, struct comm *comm, struct request **request)
{
    (void)type, (void)to, (void)tag;
    *request = calloc(1, sizeof **request);
    return send(comm->messages[rank], data, (size_t)bytes, MSG_NOSIGNAL) == bytes ? SUCCESS : FAILED;
}

int PMPI_Irecv(void *into, int bytes, void *type, int from, int tag, struct comm *comm, struct request **request)
{
    (void)type, (void)from, (void)tag;
    *request = calloc(1, sizeof **request);
    **request = (struct request){.into = into, .bytes = (size_t)bytes, .fd = comm->messages[rank]};
    return SUCCESS;
}

int PMPI_Test(struct request **request, int *done, void *status)
{
    (void)status;
    struct request *open = *request;
    *done = open->into == NULL || recv(open->fd, open->into, open->bytes, MSG_DONTWAIT) > 0;
    if (*done) {
        free(open);
        *request = NULL;
    }
    return SUCCESS;
}

int PMPI_Cancel(struct request **request) { return (void)request, SUCCESS; }

int PMPI_Request_free(struct request **request)
{
    free(*request);
    *request = NULL;
    return SUCCESS;
}

int PMPI_Allgather(const void *mine, int bytes, void *type, void *all, int same, void *same_type, struct comm *comm)
{
    (void)type, (void)same, (void)same_type;
    memcpy((char *)all + (size_t)bytes * (size_t)rank, mine, (size_t)bytes);
    return exchange(comm, mine, (char *)all + (size_t)bytes * (size_t)(1 - rank), (size_t)bytes);
}

int PMPI_Allreduce(const void *mine, void *out, int count, void *type, void *op, struct comm *comm)
{
    size_t bytes = (size_t)count * 4; /* int or float */
    const void *own = mine == (void *)1 ? out : mine;
    void *theirs = malloc(bytes);
    int status = exchange(comm, own, theirs, bytes);
    for (int i = 0; status == SUCCESS && i < count; i++) {
        if (type == &ompi_mpi_float && op == &ompi_mpi_op_sum)
            ((float *)out)[i] = ((const float *)own)[i] + ((float *)theirs)[i];
        else if (type == &ompi_mpi_int && op == &ompi_mpi_op_min)
            ((int *)out)[i] = ((const int *)own)[i] < ((int *)theirs)[i] ? ((const int *)own)[i] : ((int *)theirs)[i];
        else
            status = FAILED;
    }
    free(theirs);
    return status;
}

int MPI_Allreduce(const void *mine, void *out, int count, void *type, void *op, struct comm *comm)
{
    return PMPI_Allreduce(mine, out, count, type, op, comm);
}

int PMPI_Abort(struct comm *comm, int code)
{
    (void)comm;
    _exit(code);
}

int PMPI_Comm_call_errhandler(struct comm *comm, int code) { return PMPI_Abort(comm, code); }
