#define _GNU_SOURCE
#include "world.h"

#include "../common/clock.h"
#include "../common/slices.h"
#include "communicators.h"
#include "device.h"
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
enum { CONTROL_WORDS = 1024, MPI_ERR_OTHER_OPEN_MPI = 16, MPI_ERR_OTHER_MPICH = 15 };
static const int64_t AGREE_NS = 20 * NS_PER_S;

static struct {
    pid_t owner; /* a forked child has no lanes */
    struct settings settings;
    struct mpi_group messages;
    int64_t threshold_bytes;
    int started;   /* lanes per host that were started for COMM_WORLD's ranks */
    bool counting; /* there are lanes, or calls are to be counted */
    bool grouped;  /* `messages` is open */
} world;

static void child_after_fork(void)
{
    groups_forget();
    world.counting = false;
    world.started = 0;
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
    bool told = world.settings.stats || world.settings.counters_as_json;
    if ((world.settings.aux == 0 && !told) || !messages_open(mpi->world, &world.messages))
        return;
    world.grouped = world.counting = true;
    if (world.settings.aux == 0)
        return;
    struct group *first = groups_start_first(&world.settings, &world.messages, why);
    if (first == NULL || !communicators_start(&world.settings, first->lanes->hosts_of_ranks)) {
        if (rank == 0)
            say("no lanes: %s; everything stays on MPI", why);
        return;
    }
    world.started = first->lanes->started;
    if (world.started < world.settings.aux && rank == 0)
        say("%s; going on with %d of %d lanes", why, world.started, world.settings.aux);
    world.threshold_bytes =
        world.settings.threshold_bytes >= 0 ? world.settings.threshold_bytes : threshold_measure(first->lanes, &world.messages);
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
    if (!world.grouped || world.owner != getpid())
        return;
    bool had_lanes = world.started > 0;
    world.counting = world.grouped = false;
    world.started = 0;
    groups_close_all();
    if (world.settings.stats || world.settings.counters_as_json)
        counters_finish(&world.messages, had_lanes ? world.threshold_bytes : -1, world.settings.stats);
    if (world.messages.rank == 0 && had_lanes)
        verdict_at_end(world.threshold_bytes);
    messages_close(&world.messages);
}

static int end_in_error(enum outcome outcome, mpi_handle comm, const char *line)
{
    const struct mpi *mpi = mpi_library();
    say("rank %d: %s", world.messages.rank, line);
    int code = mpi->abi.family == MPI_FAMILY_MPICH ? MPI_ERR_OTHER_MPICH : MPI_ERR_OTHER_OPEN_MPI;
    if (outcome == OUTCOME_BROKEN) /* a rank is silent: whatever the program does next would wait for it for ever */
        mpi->abort(mpi->world, 1);
    mpi->call_errhandler(comm, code); /* by default this ends the job too */
    return code;
}

/* Horovod's bit vectors: its ranks agree by them which tensors are ready. */
static bool is_control(int64_t count, mpi_handle op, enum element_type element)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    return element == T_INT64 && count <= CONTROL_WORDS && (mpi_is(abi, op, K_BAND) || mpi_is(abi, op, K_BOR));
}

/* PASSED_REASONS: lanes can do it, if the communicator has some. Only from what MPI makes equal on all ranks, cheapest first. */
static enum passed look_at(int64_t count, mpi_handle type, mpi_handle op, enum element_type *element, enum operation *operation)
{
    const struct mpi *mpi = mpi_library();
    if (!mpi_element_type(mpi_clean(mpi, type), element))
        return PASSED_TYPE;
    if (is_control(count, op, *element))
        return PASSED_CONTROL;
    if (count <= 0 || count * (int64_t)element_bytes(*element) < world.threshold_bytes)
        return PASSED_SMALL;
    if (!mpi_operation(mpi_clean(mpi, op), *element, operation))
        return PASSED_OPERATION;
    return world.started == 0 ? PASSED_NO_LANES : PASSED_REASONS;
}

bool world_allreduce(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op, mpi_handle comm, int *status)
{
    const struct mpi *mpi = mpi_library();
    enum element_type element;
    enum operation operation;
    if (!world.counting)
        return false;
    enum passed why = look_at(count, type, op, &element, &operation);
    uint64_t bytes = why == PASSED_TYPE || count < 0 ? 0 : (uint64_t)count * element_bytes(element);
    if (why == PASSED_REASONS && (on_device(recv) || (send != mpi->abi.in_place && on_device(send))))
        why = PASSED_DEVICE; /* MPI's rules do not make this equal on all ranks, but every GPU build does */
    struct group *group = why == PASSED_REASONS ? communicator_lanes(mpi_clean(mpi, comm), &why) : NULL;
    if (group != NULL && lanes_usable(group->lanes) == 0) {
        group = NULL;
        why = PASSED_NO_LANES;
    }
    if (group == NULL) {
        counters_passed(why, bytes);
        return false;
    }
    pthread_mutex_lock(&group->lock);
    enum outcome outcome = lanes_allreduce(group->lanes, send == mpi->abi.in_place ? recv : send, recv, (uint64_t)count, element, operation);
    pthread_mutex_unlock(&group->lock);
    if (outcome == OUTCOME_REDO) {
        counters_passed(PASSED_REDONE, bytes);
        return false;
    }
    counters_carried(bytes);
    *status = outcome == OUTCOME_DONE ? MPI_SUCCESS_ : end_in_error(outcome, comm, group->lanes->reason);
    return true;
}

void world_after_mpi(const void *recv, int64_t count, mpi_handle type, mpi_handle op)
{
    const struct mpi_abi *abi = &mpi_library()->abi;
    if (!world.counting || world.messages.rank != 0 || !mpi_is(abi, op, K_BAND) || !mpi_is(abi, type, K_LONG_LONG))
        return;
    if (verdict_steps_done(recv, count) && world.started > 0)
        verdict_say(world.threshold_bytes, world.settings.stats);
}

/* Lanes per host that were started. */
API int fasthvd_lanes_total(void) { return world.started; }

/* Smaller allreduces stay on MPI (bytes). */
API int64_t fasthvd_threshold_bytes(void) { return world.started > 0 ? world.threshold_bytes : -1; }

/* From now on use the first k lanes of every communicator only, 0: MPI. Every rank calls it at the same point. 0, or -1. */
API int fasthvd_use_lanes(int k)
{
    if (k < 0 || k > world.started)
        return -1;
    groups_limit(k);
    return 0;
}
