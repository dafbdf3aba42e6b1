/* Two ranks, each with several threads; every thread has lanes of its own and allreduces over and over, all at once, in
 * another order on each rank: for the compiler's thread checker, which wants a program that is checked as a whole. */
#define _GNU_SOURCE
#include "../../fasthvd/native/common/protocol.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, THREADS = 3, ROUNDS = 12, COUNT = 100000, GROUPS_OF_A_THREAD = 2 };

typedef int gather_function(void *context, const void *mine, uint64_t bytes, void *all);
struct fasthvd;
struct fasthvd *fasthvd_open(int rank, int size, int aux, double timeout_s, const char *host_id, gather_function *gather, void *context,
                             char *why);
int fasthvd_allreduce(struct fasthvd *group, const void *send, void *recv, uint64_t count, int type, int op, char *why);
void fasthvd_limit(struct fasthvd *group, int k);
void fasthvd_close(struct fasthvd *group);

struct thread {
    int rank, number, peer; /* peer: a stream to the same thread of the other rank */
};

static void whole(ssize_t (*move)(int, void *, size_t), int fd, char *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = move(fd, at, bytes);
        if (n <= 0)
            exit(3);
        at += n;
        bytes -= (size_t)n;
    }
}

static ssize_t put(int fd, void *at, size_t bytes) { return write(fd, at, bytes); }

static int gather(void *context, const void *mine, uint64_t bytes, void *all)
{
    const struct thread *thread = context;
    whole(put, thread->peer, (char *)mine, bytes);
    memcpy((char *)all + bytes * (size_t)thread->rank, mine, bytes);
    whole(read, thread->peer, (char *)all + bytes * (size_t)(1 - thread->rank), bytes);
    return 0;
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    char why[CAUSE_BYTES], host[16];
    snprintf(host, sizeof host, "host%d", thread->rank);
    float *data = malloc(COUNT * sizeof *data);
    for (int n = 0; n < GROUPS_OF_A_THREAD; n++) {
        struct fasthvd *group = fasthvd_open(thread->rank, RANKS, 2, 20, host, gather, thread, why);
        if (group == NULL) {
            fprintf(stderr, "no lanes: %s\n", why);
            exit(2);
        }
        for (int round = 0; round < ROUNDS; round++) {
            fasthvd_limit(group, 1 + round % 2);
            for (int i = 0; i < COUNT; i++)
                data[i] = (float)(thread->rank + thread->number + round);
            if (fasthvd_allreduce(group, data, data, COUNT, T_FLOAT32, OP_SUM, why) != 0 ||
                data[0] != 2 * (thread->number + round) + 1 || data[COUNT - 1] != data[0]) {
                fprintf(stderr, "wrong: %s\n", why);
                exit(2);
            }
        }
        fasthvd_close(group);
    }
    free(data);
    return NULL;
}

static int run_rank(int rank, int peers[THREADS][RANKS])
{
    pthread_t threads[THREADS];
    struct thread of[THREADS];
    for (int i = 0; i < THREADS; i++) {
        int number = (i + rank) % THREADS;
        of[i] = (struct thread){.rank = rank, .number = number, .peer = peers[number][rank]};
        pthread_create(&threads[i], NULL, work, &of[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(void)
{
    int peers[THREADS][RANKS];
    for (int i = 0; i < THREADS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, peers[i]) != 0)
            return 2;
    pid_t other = fork();
    int rank = other == 0, status = 0;
    int done = run_rank(rank, peers);
    if (rank == 1)
        exit(done); /* not _exit: the checker reports at the end */
    if (waitpid(other, &status, 0) != other || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 1;
    puts("threads ok");
    return done;
}
