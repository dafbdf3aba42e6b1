/* The lane groups of this process. Each has lanes, flows, sequence numbers and a private communicator of its own and
 * serves one communicator at a time: no order between the calls on different communicators is ever needed. */
#ifndef FASTHVD_GROUPS_H
#define FASTHVD_GROUPS_H
#include "lanes.h"
#include "messages.h"

#include <pthread.h>

enum {
    GROUPS_MAX = 8,       /* of one process, the first one too */
    GROUP_AFTER_CALLS = 4 /* large calls on a communicator before it gets lanes of its own: those made for a moment never do */
};

struct group {
    pthread_mutex_t lock; /* MPI forbids two collective calls at once on one communicator; a program that does it must not crash here */
    struct mpi_group messages;
    struct lanes *lanes;
};

/* Collective over COMM_WORLD, once: the group that is started before it is known which communicator will use it. NULL:
 * agreed on all ranks, with the reason. */
struct group *groups_start_first(const struct settings *settings, struct mpi_group *messages, char why[CAUSE_BYTES]);
/* Sets the first group aside for the caller, if it is free on this rank. What the other ranks say decides whether it
 * stays so; if one said no, every rank that set it aside gives it back. */
bool groups_set_first_aside(void);
void groups_give_first_back(void);
struct group *groups_first(void);

/* The same for room for one more group. A process that has seen many groups come and go lets new ones wait longer. */
bool groups_set_room_aside(uint32_t large_calls);
void groups_give_room_back(void);
/* Collective over `comm`, with room set aside on all its ranks. NULL: agreed, with the reason; the room is given back. */
struct group *groups_open(const struct settings *settings, mpi_handle comm, uint32_t number, char why[CAUSE_BYTES]);
/* The communicator is freed. With `collective` the private communicator is freed too. */
void groups_close(struct group *group, bool collective);

/* Use only the first k lanes of every group. */
void groups_limit(int k);
/* Before MPI_Finalize: nothing stays but the counters. */
void groups_close_all(void);
/* In a forked child. */
void groups_forget(void);
#endif
