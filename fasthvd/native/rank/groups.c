#define _GNU_SOURCE
#include "groups.h"

#include "counters.h"

#include <stdlib.h>

enum { PATIENCE_MAX = 14 };

static struct {
    pthread_mutex_t lock; /* never held while MPI or lanes are called */
    struct group *all[GROUPS_MAX]; /* the first group is all[0] */
    int places;                    /* taken or set aside */
    int closed;
    bool first_taken;
    int limit;
} groups = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = LANES_MAX};

static struct group *make(const struct settings *settings, const struct mpi_group *messages, char why[CAUSE_BYTES])
{
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        abort(); /* as in lanes_create: the other ranks wait for us */
    pthread_mutex_init(&group->lock, NULL);
    group->messages = *messages;
    struct transport transport = messages_transport(&group->messages);
    group->lanes = lanes_create(settings, &transport, why);
    if (group->lanes != NULL)
        return group;
    free(group);
    return NULL;
}

static void enter(struct group *group)
{
    pthread_mutex_lock(&groups.lock);
    group->lanes->limit = groups.limit;
    int place = 0;
    while (groups.all[place] != NULL)
        place++; /* there is one: it was set aside */
    __atomic_store_n(&groups.all[place], group, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&groups.lock);
}

struct group *groups_start_first(const struct settings *settings, struct mpi_group *messages, char why[CAUSE_BYTES])
{
    struct group *group = make(settings, messages, why);
    if (group == NULL)
        return NULL;
    groups.places = 1;
    enter(group);
    return group;
}

bool groups_set_first_aside(void)
{
    pthread_mutex_lock(&groups.lock);
    bool free_now = groups.all[0] != NULL && !groups.first_taken && groups.all[0]->lanes->alive != 0;
    groups.first_taken = groups.first_taken || free_now;
    pthread_mutex_unlock(&groups.lock);
    return free_now;
}

void groups_give_first_back(void)
{
    pthread_mutex_lock(&groups.lock);
    groups.first_taken = false;
    pthread_mutex_unlock(&groups.lock);
}

struct group *groups_first(void) { return __atomic_load_n(&groups.all[0], __ATOMIC_ACQUIRE); }

bool groups_set_room_aside(uint32_t large_calls)
{
    pthread_mutex_lock(&groups.lock);
    int doubled = groups.closed / 2 < PATIENCE_MAX ? groups.closed / 2 : PATIENCE_MAX;
    bool room = groups.places < GROUPS_MAX && large_calls >= (uint32_t)GROUP_AFTER_CALLS << doubled;
    groups.places += room;
    pthread_mutex_unlock(&groups.lock);
    return room;
}

void groups_give_room_back(void)
{
    pthread_mutex_lock(&groups.lock);
    groups.places--;
    pthread_mutex_unlock(&groups.lock);
}

struct group *groups_open(const struct settings *settings, mpi_handle comm, uint32_t number, char why[CAUSE_BYTES])
{
    struct mpi_group messages;
    struct group *group = messages_open(comm, &messages) ? make(settings, &messages, why) : NULL;
    if (group == NULL) {
        if (messages.comm != 0)
            messages_close(&messages);
        groups_give_room_back();
        return NULL;
    }
    group->lanes->number = number;
    enter(group);
    counters_group();
    return group;
}

static void end(struct group *group, bool collective)
{
    counters_keep_lanes(group->lanes);
    lanes_close(group->lanes);
    if (collective)
        messages_close(&group->messages);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

void groups_close(struct group *group, bool collective)
{
    bool mine = false;
    pthread_mutex_lock(&groups.lock);
    if (group == groups.all[0]) {
        groups.first_taken = false; /* the next one may have it */
    } else {
        for (int i = 1; i < GROUPS_MAX; i++)
            if (groups.all[i] == group) {
                groups.all[i] = NULL;
                mine = true;
            }
        groups.places -= mine;
        groups.closed += mine;
    }
    pthread_mutex_unlock(&groups.lock);
    if (mine)
        end(group, collective);
}

void groups_limit(int k)
{
    pthread_mutex_lock(&groups.lock);
    groups.limit = k;
    for (int i = 0; i < GROUPS_MAX; i++)
        if (groups.all[i] != NULL)
            groups.all[i]->lanes->limit = k;
    pthread_mutex_unlock(&groups.lock);
}

void groups_close_all(void)
{
    for (int i = 0; i < GROUPS_MAX; i++) {
        pthread_mutex_lock(&groups.lock);
        struct group *group = groups.all[i];
        groups.all[i] = NULL;
        pthread_mutex_unlock(&groups.lock);
        if (group != NULL)
            end(group, false); /* MPI_Finalize frees what is left of communicators */
    }
}

void groups_forget(void)
{
    for (int i = 0; i < GROUPS_MAX; i++) {
        if (groups.all[i] != NULL)
            lanes_forget(groups.all[i]->lanes);
        groups.all[i] = NULL;
    }
}
