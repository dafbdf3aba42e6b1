#define _GNU_SOURCE
#include "world.h"

#include "../common/clock.h"
#include "../common/slices.h"
#include "counters.h"
#include "device.h"
#include "lanes.h"
#include "messages.h"
#include "report.h"
#include "say.h"
#include "threshold.h"
#include "verdict.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { COMMUNICATORS_MAX = 64, CONTROL_WORDS = 1024, MPI_ERR_OTHER_OPEN_MPI = 16, MPI_ERR_OTHER_MPICH = 15 };
static const int64_t AGREE_NS = 20 * NS_PER_S;

static struct {
    pthread_mutex_t lock;
    pid_t owner; /* a forked child has no lanes */
    struct settings settings;
    struct mpi_group group;
    struct lanes *lanes;
    int64_t threshold_bytes;
    bool counting; /* there are lanes, or calls are to be counted */
    bool grouped;  /* `group` is open */
    /* communicators that have been looked at; a freed handle is dropped, MPI gives it out again */
    struct {
        mpi_handle comm;
        bool congruent;
    } looked_at[COMMUNICATORS_MAX];
    int next_place;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void child_after_fork(void)
{
    if (world.lanes != NULL)
        lanes_forget(world.lanes);
    world.lanes = NULL;
    world.counting = false;
}

static void start_lanes_of_world(void)
{
    const struct mpi *mpi = mpi_library();
    char why[CAUSE_BYTES] = "";
    int rank = 0;
    mpi->rank(mpi->world, &rank);
    int64_t limit = world.settings.timeout_ns < AGREE_NS ? world.settings.timeout_ns : AGREE_NS;
    if (!messages_agree(settings_digest(&world.settings), limit, why)) {
        if (rank == 0 || strncmp(why, "rank 0 ", 7) == 0)
            say("no lanes: %s; everything stays on MPI", why);
        return;
    }
    if ((world.settings.aux == 0 && !world.settings.stats && !world.settings.counters_as_json) || !messages_open(mpi->world, &world.group))
        return;
    world.grouped = world.counting = true;
    if (world.settings.aux == 0)
        return;
    struct transport transport = messages_transport(&world.group);
    world.lanes = lanes_create(&world.settings, &transport, why);
    if (world.lanes == NULL) {
        if (rank == 0)
            say("no lanes: %s; everything stays on MPI", why);
        return;
    }
    if (world.lanes->started < world.settings.aux && rank == 0)
        say("%s; going on with %d of %d lanes", why, world.lanes->started, world.settings.aux);
    world.threshold_bytes = world.settings.threshold_bytes >= 0 ? world.settings.threshold_bytes : threshold_measure(world.lanes, &world.group);
    pthread_atfork(NULL, NULL, child_after_fork);
}

void world_start(void)
{
    const struct mpi *mpi = mpi_library();
    char why[SETTING_BYTES];
    int rank = 0, size = 0;
    if (getenv("FASTHVD_AUX") == NULL || world.owner != 0)
        return;
    world.owner = getpid();
    if (!mpi_usable(mpi)) {
        say("no lanes: this MPI is neither Open MPI nor MPICH; everything stays on MPI");
        return;
    }
    if (!settings_read(&world.settings, why)) {
        say("%s", why);
        mpi->abort(mpi->world, 2);
        return;
    }
    if (mpi->size(mpi->world, &size) != MPI_SUCCESS_ || mpi->rank(mpi->world, &rank) != MPI_SUCCESS_)
        return;
    if (rank == 0)
        report_start(size);
    if (size > 1)
        start_lanes_of_world();
}

void world_finish(void)
{
    pthread_mutex_lock(&world.lock);
    if (world.grouped && world.owner == getpid()) {
        world.counting = world.grouped = false;
        if (world.lanes != NULL)
            counters_keep_lanes(world.lanes);
        if (world.settings.stats || world.settings.counters_as_json)
            counters_finish(&world.group, world.threshold_bytes, world.settings.stats);
        if (world.group.rank == 0 && world.lanes != NULL)
            verdict_at_end(world.threshold_bytes);
        lanes_close(world.lanes);
        world.lanes = NULL;
        messages_close(&world.group);
    }
    pthread_mutex_unlock(&world.lock);
}

void world_drop_communicator(mpi_handle comm)
{
    for (int i = 0; i < COMMUNICATORS_MAX; i++)
        if (world.looked_at[i].comm == comm)
            world.looked_at[i].comm = 0;
}

/* Does `comm` have the same ranks in the same order as COMM_WORLD? The same answer on all of them. */
static bool congruent(mpi_handle comm)
{
    const struct mpi *mpi = mpi_library();
    for (int i = 0; i < COMMUNICATORS_MAX; i++)
        if (world.looked_at[i].comm == comm)
            return world.looked_at[i].congruent;
    int answer = -1;
    if (mpi->compare(comm, mpi->world, &answer) != MPI_SUCCESS_)
        return false;
    int place = world.next_place++ % COMMUNICATORS_MAX;
    world.looked_at[place].comm = comm;
    world.looked_at[place].congruent = answer == MPI_IDENT_ || answer == MPI_CONGRUENT_;
    return world.looked_at[place].congruent;
}

static int end_in_error(enum outcome outcome, mpi_handle comm, const char *line)
{
    const struct mpi *mpi = mpi_library();
    say("rank %d: %s", world.group.rank, line);
    int code = mpi->abi.family == MPI_FAMILY_MPICH ? MPI_ERR_OTHER_MPICH : MPI_ERR_OTHER_OPEN_MPI;
    if (outcome == OUTCOME_BROKEN) /* a rank is silent: whatever the program does next would wait for it for ever */
        mpi->abort(mpi->world, 1);
    mpi->call_errhandler(comm, code); /* by default this ends the job too */
    return code;
}

/* Horovod's bit vectors: its ranks agree by them which tensors are ready. */
static bool is_control(int count, mpi_handle op, enum element_type element)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    return element == T_INT64 && count <= CONTROL_WORDS && (mpi_is(abi, op, K_BAND) || mpi_is(abi, op, K_BOR));
}

/* PASSED_REASONS: the lanes can do it. Only from what MPI makes equal on all ranks, cheapest first. */
static enum passed look_at(int count, mpi_handle type, mpi_handle op, mpi_handle comm, enum element_type *element, enum operation *operation)
{
    const struct mpi *mpi = mpi_library();
    if (!mpi_element_type(mpi_clean(mpi, type), element))
        return PASSED_TYPE;
    if (is_control(count, op, *element))
        return PASSED_CONTROL;
    if ((int64_t)count * (int64_t)element_bytes(*element) < world.threshold_bytes || count <= 0)
        return PASSED_SMALL;
    if (!mpi_operation(mpi_clean(mpi, op), *element, operation))
        return PASSED_OPERATION;
    if (!congruent(mpi_clean(mpi, comm)))
        return PASSED_COMMUNICATOR;
    return world.lanes == NULL || lanes_usable(world.lanes) == 0 ? PASSED_NO_LANES : PASSED_REASONS;
}

bool world_allreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm, int *status)
{
    enum element_type element;
    enum operation operation;
    if (!world.counting)
        return false;
    enum passed why = look_at(count, type, op, comm, &element, &operation);
    uint64_t bytes = why == PASSED_TYPE || count < 0 ? 0 : (uint64_t)count * element_bytes(element);
    if (why == PASSED_REASONS && (on_device(recv) || (send != mpi_library()->abi.in_place && on_device(send))))
        why = PASSED_DEVICE; /* MPI's rules do not make this equal on all ranks, but every GPU build does */
    if (why != PASSED_REASONS) {
        counters_passed(why, bytes);
        return false;
    }
    pthread_mutex_lock(&world.lock);
    enum outcome outcome =
        lanes_allreduce(world.lanes, send == mpi_library()->abi.in_place ? recv : send, recv, (uint64_t)count, element, operation, 0);
    pthread_mutex_unlock(&world.lock);
    if (outcome == OUTCOME_REDO) {
        counters_passed(PASSED_REDONE, bytes);
        return false;
    }
    counters_carried(bytes);
    *status = outcome == OUTCOME_DONE ? MPI_SUCCESS_ : end_in_error(outcome, comm, world.lanes->reason);
    return true;
}

void world_after_mpi(const void *recv, int count, mpi_handle type, mpi_handle op)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    if (!world.counting || world.group.rank != 0 || !mpi_is(abi, op, K_BAND) || !mpi_is(abi, type, K_LONG_LONG))
        return;
    if (verdict_steps_done(recv, count) && world.lanes != NULL)
        verdict_say(world.threshold_bytes, world.settings.stats);
}

/* Lanes per host that were started. */
API int fasthvd_lanes_total(void) { return world.lanes != NULL ? world.lanes->started : 0; }

/* Smaller allreduces stay on MPI (bytes). */
API int64_t fasthvd_threshold_bytes(void) { return world.lanes != NULL ? world.threshold_bytes : -1; }

/* From now on use the first k lanes only, 0: MPI. Every rank calls it at the same point. 0, or -1. */
API int fasthvd_use_lanes(int k)
{
    if (world.lanes == NULL)
        return k == 0 ? 0 : -1;
    if (k < 0 || k > world.lanes->started)
        return -1;
    world.lanes->limit = k;
    return 0;
}
