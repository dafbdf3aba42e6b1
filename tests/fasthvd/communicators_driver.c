/* Two ranks, each with several threads, each thread with communicators that it makes, uses and frees, all at once and in
 * another order on each rank: who gets which lane group, under the compiler's thread checker. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, LIVES = 3, CALLS = 9, COUNT = 50000 };

struct comm;
int stand_in_prepare(void);
void stand_in_rank(int number);
struct comm *stand_in_world(void);
void *stand_in_float(void);
void *stand_in_sum(void);
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Allreduce(const void *send, void *recv, int count, void *type, void *op, struct comm *comm);
int MPI_Comm_free(struct comm **comm);
int PMPI_Comm_split(struct comm *comm, int color, int key, struct comm **out);
int fasthvd_lanes_total(void);

struct thread {
    int rank, number;
    struct comm *parent;
};

static void use(struct comm *comm, float *data, int rank, int number)
{
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < COUNT; i++)
            data[i] = (float)(rank + number + call);
        if (MPI_Allreduce((void *)1, data, COUNT, stand_in_float(), stand_in_sum(), comm) != 0 ||
            data[0] != 2 * (number + call) + 1 || data[COUNT - 1] != data[0]) {
            fprintf(stderr, "rank %d, thread %d, call %d: wrong\n", rank, number, call);
            exit(2);
        }
    }
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    float *data = malloc(COUNT * sizeof *data);
    for (int life = 0; life < LIVES; life++) {
        struct comm *comm;
        if (PMPI_Comm_split(thread->parent, 0, 0, &comm) != 0)
            exit(3);
        use(comm, data, thread->rank, thread->number);
        if (life < LIVES - 1) /* the last ones live on until MPI_Finalize */
            MPI_Comm_free(&comm);
    }
    free(data);
    return NULL;
}

static void run(int rank)
{
    pthread_t threads[THREADS];
    struct thread of[THREADS];
    stand_in_rank(rank);
    setenv("FASTHVD_HOST_ID", rank == 0 ? "host0" : "host1", 1);
    MPI_Init(NULL, NULL);
    if (fasthvd_lanes_total() != 2)
        exit(3);
    for (int i = 0; i < THREADS; i++) {
        of[i] = (struct thread){.rank = rank, .number = i};
        if (PMPI_Comm_split(stand_in_world(), 0, 0, &of[i].parent) != 0)
            exit(3);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &of[(i + rank) % THREADS]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    MPI_Finalize();
}

int main(void)
{
    if (!stand_in_prepare())
        return 3;
    pid_t other = fork();
    int status = 0;
    run(other == 0);
    if (other == 0)
        exit(0); /* not _exit: the checker reports at the end */
    if (waitpid(other, &status, 0) != other || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 1;
    puts("communicators ok");
    return 0;
}
