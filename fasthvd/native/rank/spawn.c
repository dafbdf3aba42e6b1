#define _GNU_SOURCE
#include "spawn.h"

#include "../common/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/wait.h>

static int run(const char *program, int control, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int error = 0;
    for (int fd = 0; fd < 3 && error == 0; fd++) /* mpirun waits for the ends of its pipes: a lane must not hold them */
        error = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(actions, control, LEADER_FD);
    if (error == 0)
        error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (error != 0 || posix_spawnattr_setsigmask(attributes, &none) != 0 || posix_spawnattr_setsigdefault(attributes, &all) != 0)
        return error != 0 ? error : EINVAL;
    /* No environment at all: neither MPI's variables nor anybody's preload reach a lane. */
    char *arguments[] = {(char *)"fasthvd-lane", NULL}, *environment[] = {NULL};
    pid_t starter;
    error = posix_spawn(&starter, program, actions, attributes, arguments, environment);
    if (error != 0)
        return error;
    int status = 0;
    pid_t ended;
    do
        ended = waitpid(starter, &status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == starter && status != 0 ? EAGAIN : 0; /* the starter has forked the lane and is gone */
}

int spawn_lane(const char *program, int control)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        error = run(program, control, &actions, &attributes);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}
