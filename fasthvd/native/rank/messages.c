#define _GNU_SOURCE
#include "messages.h"

#include "../common/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

enum { TAG_AGREE = 27182, TAG_VOTE = 27183, AGREE_MAGIC = 0x46485644, SPIN_TESTS = 200 };

struct agree_message {
    uint32_t magic, good;
    uint64_t digest;
    char why[CAUSE_BYTES];
};

static bool test_all(mpi_handle *requests, bool *open, int n)
{
    const struct mpi *mpi = mpi_library();
    bool all = true;
    for (int i = 0; i < n; i++) {
        int done = 0;
        if (open[i] && mpi->test(&requests[i], &done, mpi->abi.status_ignore) == MPI_SUCCESS_ && done)
            open[i] = false;
        all = all && !open[i];
    }
    return all;
}

/* Tests until all are complete: at once, then giving the core away, then sleeping. False: the time is over. */
static bool complete(mpi_handle *requests, bool *open, int n, int64_t deadline)
{
    struct timespec nap = {.tv_nsec = 20000};
    for (int tries = 0; !test_all(requests, open, n); tries++) {
        if (tries < SPIN_TESTS) {
            sched_yield();
            continue;
        }
        if (now_ns() > deadline)
            return false;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 1000000)
            nap.tv_nsec += nap.tv_nsec / 4;
    }
    return true;
}

static void give_up(mpi_handle *requests, const bool *open, int n)
{
    const struct mpi *mpi = mpi_library();
    for (int i = 0; i < n; i++)
        if (open[i]) {
            mpi->cancel(&requests[i]);
            mpi->request_free(&requests[i]);
        }
}

static void judge(const struct agree_message *heard, const bool *open, int size, uint64_t digest, struct agree_message *verdict)
{
    int silent = 0, first_silent = -1, other = -1;
    for (int i = 1; i < size; i++) {
        if (open[i]) {
            silent++;
            first_silent = first_silent < 0 ? i : first_silent;
        } else if (heard[i].magic != AGREE_MAGIC || heard[i].digest != digest) {
            other = other < 0 ? i : other;
        }
    }
    verdict->good = silent == 0 && other < 0;
    if (silent > 0)
        snprintf(verdict->why, CAUSE_BYTES, "rank %d%s did not answer: libfasthvd.so is not preloaded there", first_silent,
                 silent > 1 ? " (and others)" : "");
    else if (other >= 0)
        snprintf(verdict->why, CAUSE_BYTES, "rank %d has other FASTHVD_* settings, or another version, than rank 0", other);
}

static bool agree_first(int size, uint64_t digest, int64_t timeout_ns, char why[CAUSE_BYTES])
{
    const struct mpi *mpi = mpi_library();
    struct agree_message *heard = calloc((size_t)size, sizeof *heard), verdict = {.magic = AGREE_MAGIC, .digest = digest};
    mpi_handle *requests = calloc((size_t)size, sizeof *requests);
    bool *open = calloc((size_t)size, sizeof *open), *answering = calloc((size_t)size, sizeof *answering);
    for (int i = 1; i < size; i++)
        open[i] = mpi->irecv(&heard[i], sizeof *heard, mpi->byte, i, TAG_AGREE, mpi->world, &requests[i]) == MPI_SUCCESS_;
    complete(requests, open, size, now_ns() + timeout_ns);
    judge(heard, open, size, digest, &verdict);
    give_up(requests, open, size);
    for (int i = 1; i < size; i++)
        if (!open[i])
            answering[i] = mpi->isend(&verdict, sizeof verdict, mpi->byte, i, TAG_AGREE, mpi->world, &requests[i]) == MPI_SUCCESS_;
    complete(requests, answering, size, now_ns() + timeout_ns);
    snprintf(why, CAUSE_BYTES, "%s", verdict.why);
    free(heard);
    free(requests);
    free(open);
    free(answering);
    return verdict.good;
}

static bool agree_other(uint64_t digest, int64_t timeout_ns, char why[CAUSE_BYTES])
{
    const struct mpi *mpi = mpi_library();
    struct agree_message mine = {.magic = AGREE_MAGIC, .digest = digest}, verdict = {.magic = 0};
    mpi_handle requests[2];
    bool open[2] = {true, true};
    mpi->irecv(&verdict, sizeof verdict, mpi->byte, 0, TAG_AGREE, mpi->world, &requests[0]);
    mpi->isend(&mine, sizeof mine, mpi->byte, 0, TAG_AGREE, mpi->world, &requests[1]);
    /* Rank 0 waits for the silent ones first; its verdict comes after its own time limit at the latest. */
    if (!complete(requests, open, 2, now_ns() + 2 * timeout_ns)) {
        give_up(requests, open, 2);
        snprintf(why, CAUSE_BYTES, "rank 0 did not answer: libfasthvd.so is not preloaded there");
        return false;
    }
    snprintf(why, CAUSE_BYTES, "%s", verdict.why);
    return verdict.magic == AGREE_MAGIC && verdict.good;
}

bool messages_agree(uint64_t digest, int64_t timeout_ns, char why[CAUSE_BYTES])
{
    const struct mpi *mpi = mpi_library();
    int rank = 0, size = 0;
    if (mpi->rank(mpi->world, &rank) != MPI_SUCCESS_ || mpi->size(mpi->world, &size) != MPI_SUCCESS_)
        return false;
    return rank == 0 ? agree_first(size, digest, timeout_ns, why) : agree_other(digest, timeout_ns, why);
}

bool messages_open(mpi_handle comm, struct mpi_group *group)
{
    const struct mpi *mpi = mpi_library();
    *group = (struct mpi_group){.comm = 0};
    /* Not a duplicate: that would copy the program's attributes and run its callbacks. */
    return mpi->rank(comm, &group->rank) == MPI_SUCCESS_ && mpi->split(comm, 0, group->rank, &group->comm) == MPI_SUCCESS_ &&
           mpi->size(group->comm, &group->size) == MPI_SUCCESS_;
}

void messages_close(struct mpi_group *group) { mpi_library()->free(&group->comm); }

static bool gather(void *context, const void *mine, size_t bytes, void *all)
{
    const struct mpi *mpi = mpi_library();
    const struct mpi_group *group = context;
    return mpi->allgather(mine, (int)bytes, mpi->byte, all, (int)bytes, mpi->byte, group->comm) == MPI_SUCCESS_;
}

/* AND by dissemination: in round r with the ranks 2^r before and behind; it does not matter that some count twice. */
static bool vote(void *context, uint64_t ballot[2], int64_t timeout_ns, char why[CAUSE_BYTES])
{
    const struct mpi *mpi = mpi_library();
    const struct mpi_group *group = context;
    int64_t deadline = now_ns() + timeout_ns;
    for (int64_t distance = 1; distance < group->size; distance *= 2) {
        int to = (int)((group->rank + distance) % group->size), from = (int)((group->rank - distance + group->size) % group->size);
        uint64_t theirs[2], mine[2] = {ballot[0], ballot[1]};
        mpi_handle requests[2];
        bool open[2] = {true, true};
        if (mpi->irecv(theirs, sizeof theirs, mpi->byte, from, TAG_VOTE, group->comm, &requests[0]) != MPI_SUCCESS_ ||
            mpi->isend(mine, sizeof mine, mpi->byte, to, TAG_VOTE, group->comm, &requests[1]) != MPI_SUCCESS_ ||
            !complete(requests, open, 2, deadline)) {
            snprintf(why, CAUSE_BYTES, "rank %d has not voted for %.1f s: is it stopped, or its network gone?", from, (double)timeout_ns / NS_PER_S);
            return false;
        }
        ballot[0] &= theirs[0];
        ballot[1] &= theirs[1];
    }
    return true;
}

struct transport messages_transport(struct mpi_group *group)
{
    return (struct transport){.rank = group->rank, .size = group->size, .context = group, .gather = gather, .vote = vote};
}
