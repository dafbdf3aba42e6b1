/* Read before every source of the benchmark's build with lanes as threads: what a process owns is a thread's here. */
#define _GNU_SOURCE
#include "../../fasthvd/native/common/protocol.h"

#include <pthread.h>
#include <unistd.h>

extern __thread int thread_leader_fd;
#define LEADER_FD thread_leader_fd
#define _exit(status) pthread_exit(NULL)
#define FASTHVD_THREADS 1
