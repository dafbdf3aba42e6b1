#define _GNU_SOURCE
#include "communicators.h"

#include "say.h"

#include <stdlib.h>

struct communicator {
    bool suits;    /* its ranks may have lanes */
    bool is_world; /* the same ranks in the same order as COMM_WORLD */
    uint32_t number; /* from its ranks: equal on all of them */
    uint32_t large;    /* large allreduces so far, equal on all ranks */
    uint32_t next_try; /* at which of them the ranks try to get lanes */
    struct group *group;
};

static struct {
    const struct settings *settings;
    const uint32_t *hosts; /* of the ranks of COMM_WORLD */
    int keyval;
    bool started;
} communicators;

static int not_copied(mpi_handle comm, int keyval, void *extra, void *value, void *copy, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)value, (void)copy;
    *flag = 0;
    return MPI_SUCCESS_;
}

/* MPI frees the communicator. Usually communicator_drop was there before; from Fortran it was not. No MPI in here. */
static int deleted(mpi_handle comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)extra;
    struct communicator *known = value;
    if (known->group != NULL)
        groups_close(known->group, false);
    free(known);
    return MPI_SUCCESS_;
}

bool communicators_start(const struct settings *settings, const uint32_t *hosts_of_ranks)
{
    communicators.settings = settings;
    communicators.hosts = hosts_of_ranks;
    communicators.started = mpi_library()->create_keyval(not_copied, deleted, &communicators.keyval, NULL) == MPI_SUCCESS_;
    return communicators.started;
}

/* Without memory on one rank only, that rank would decide otherwise than those that wait for it: a wrong pairing. */
static int *ranks_room(int size)
{
    int *room = calloc((size_t)size, sizeof *room);
    if (room == NULL)
        abort();
    return room;
}

/* The ranks of `comm` as ranks of COMM_WORLD; false when one is of another world (MPI_Comm_spawn). */
static bool world_ranks(mpi_handle comm, int size, int *ranks)
{
    const struct mpi *mpi = mpi_library();
    mpi_handle group = 0, world = 0;
    int *own = ranks_room(size);
    bool good = mpi->group(comm, &group) == MPI_SUCCESS_ && mpi->group(mpi->world, &world) == MPI_SUCCESS_;
    for (int i = 0; good && i < size; i++)
        own[i] = i;
    good = good && mpi->translate(group, size, own, world, ranks) == MPI_SUCCESS_;
    for (int i = 0; good && i < size; i++)
        good = ranks[i] != MPI_UNDEFINED_;
    if (group != 0)
        mpi->group_free(&group);
    if (world != 0)
        mpi->group_free(&world);
    free(own);
    return good;
}

/* Lanes are for ranks on several hosts: whole hosts, a part of each, or one rank of each. Those that share one host stay
 * with MPI's shared memory, unless the whole job does. All that is looked at is the same on all ranks of `comm`. */
static void look_at(mpi_handle comm, struct communicator *known)
{
    const struct mpi *mpi = mpi_library();
    int between = 1, size = 0, like_world = -1;
    if (mpi->test_inter(comm, &between) != MPI_SUCCESS_ || between || mpi->size(comm, &size) != MPI_SUCCESS_ || size < 2)
        return;
    int *ranks = ranks_room(size);
    if (world_ranks(comm, size, ranks) && mpi->compare(comm, mpi->world, &like_world) == MPI_SUCCESS_) {
        known->is_world = known->suits = like_world == MPI_IDENT_ || like_world == MPI_CONGRUENT_;
        known->number = 2166136261u;
        for (int i = 0; i < size; i++) {
            known->suits = known->suits || communicators.hosts[ranks[i]] != communicators.hosts[ranks[0]];
            known->number = (known->number ^ (uint32_t)ranks[i]) * 16777619u;
        }
    }
    free(ranks);
}

static struct communicator *known_of(mpi_handle comm)
{
    const struct mpi *mpi = mpi_library();
    struct communicator *known = NULL;
    int found = 0;
    if (mpi->get_attribute(comm, communicators.keyval, &known, &found) == MPI_SUCCESS_ && found)
        return known;
    known = calloc(1, sizeof *known);
    if (known == NULL)
        abort(); /* not even 40 bytes, and the other ranks wait for us */
    look_at(comm, known);
    known->next_try = known->is_world ? 1 : GROUP_AFTER_CALLS;
    mpi->set_attribute(comm, communicators.keyval, known);
    return known;
}

/* Do all ranks of `comm` say so? Collective calls of MPI on `comm` itself: the ranks are in one, this one's allreduce. */
static void agree(mpi_handle comm, int said[2])
{
    const struct mpi *mpi = mpi_library();
    int all[2] = {0, 0};
    if (mpi->own_allreduce(said, all, 2, mpi->abi.constant[K_INT], mpi->abi.constant[K_MIN], comm) != MPI_SUCCESS_)
        all[0] = all[1] = 0;
    said[0] = all[0];
    said[1] = all[1];
}

static void open_own(mpi_handle comm, struct communicator *known)
{
    const struct mpi *mpi = mpi_library();
    char why[CAUSE_BYTES] = "";
    int rank = 0, size = 0;
    known->group = groups_open(communicators.settings, comm, known->number, why);
    mpi->rank(comm, &rank);
    mpi->size(comm, &size);
    if (known->group != NULL)
        return;
    known->next_try = 0; /* said once, not tried again */
    if (rank == 0)
        say("no lanes for a communicator of %d ranks: %s; it stays on MPI", size, why);
}

/* The first group if it is free on all ranks, else a group of its own if there is room on all ranks. Tried again after
 * twice as many calls. */
static void try_to_get(mpi_handle comm, struct communicator *known)
{
    known->next_try = known->large * 2 > known->large ? known->large * 2 : UINT32_MAX;
    int offer[2] = {known->is_world && groups_set_first_aside(), groups_set_room_aside(known->large)}, all[2] = {offer[0], offer[1]};
    agree(comm, all);
    if (offer[0] && !all[0])
        groups_give_first_back();
    if (offer[1] && (all[0] || !all[1]))
        groups_give_room_back();
    if (all[0])
        known->group = groups_first();
    else if (all[1])
        open_own(comm, known);
}

struct group *communicator_lanes(mpi_handle comm, enum passed *why)
{
    struct communicator *known = known_of(comm);
    *why = PASSED_COMMUNICATOR;
    if (!known->suits)
        return NULL;
    if (known->group == NULL && ++known->large == known->next_try)
        try_to_get(comm, known);
    *why = known->large < GROUP_AFTER_CALLS ? PASSED_NEW_COMMUNICATOR : PASSED_NO_GROUP;
    return known->group;
}

void communicator_drop(mpi_handle comm)
{
    const struct mpi *mpi = mpi_library();
    struct communicator *known = NULL;
    int found = 0;
    if (!communicators.started || mpi->get_attribute(comm, communicators.keyval, &known, &found) != MPI_SUCCESS_ || !found ||
        known->group == NULL)
        return;
    groups_close(known->group, true);
    known->group = NULL;
}
