/* Whether this process is traced, which steps are wanted, and its folder. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vsketch.h"

_Atomic int vsk_recording;
_Atomic int vsk_step = -1;
_Atomic int vsk_under_way;

static _Atomic int known; /* 0 environment not read, 1 traced, -1 not traced */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int first_step, last_step, every = 1, windowed;
static _Atomic int enabled;
static char base[3072], folder[3584];
static int folder_failed;

static void forget_in_child(void) {
    /* A forked child shares the mapped logs with its parent: it must not write a byte. */
    atomic_store(&known, -1);
    atomic_store(&vsk_recording, 0);
}

static int in_window(int step) {
    if (!windowed) return 1;
    if (step < 0) return first_step <= 0; /* what comes before step 0 goes with it */
    return step >= first_step && step < last_step && (step - first_step) % every == 0;
}

static void decide(void) {
    atomic_store_explicit(&vsk_recording, enabled && in_window(atomic_load(&vsk_step)), memory_order_relaxed);
}

static void read_window(void) {
    const char *steps = getenv("VSKETCH_STEPS");
    const char *stride = getenv("VSKETCH_EVERY");
    first_step = 0;
    last_step = INT32_MAX;
    if (steps && sscanf(steps, "%d:%d", &first_step, &last_step) >= 1) windowed = 1;
    if (stride && atoi(stride) > 1) {
        every = atoi(stride);
        windowed = 1;
    }
}

static void toggle(int number) {
    (void)number;
    enabled = !enabled;
    decide();
}

/* Open MPI hands SIGUSR2 of the launcher on to every rank. */
static void listen_for_signal(void) {
    struct sigaction action = {.sa_handler = toggle, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
}

static int read_environment(void) {
    const char *place = getenv("VSKETCH_DIR");
    if (!place || place[0] != '/' || strlen(place) >= sizeof base) return -1;
    strcpy(base, place);
    read_window();
    enabled = !(getenv("VSKETCH_ARMED") && getenv("VSKETCH_ARMED")[0] == '1');
    if (!enabled) listen_for_signal();
    pthread_atfork(NULL, NULL, forget_in_child);
    decide();
    return 1;
}

int vsk_ready(void) {
    int answer = atomic_load_explicit(&known, memory_order_acquire);
    if (answer) return answer > 0;
    pthread_mutex_lock(&lock);
    answer = atomic_load(&known);
    if (!answer) {
        answer = read_environment();
        atomic_store_explicit(&known, answer, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return answer > 0;
}

void vsk_say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(line, sizeof line, "vsketchdlc: ");
    vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    syscall(SYS_write, 2, line, strlen(line));
}

static int make_folder(void) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    if (mkdir(base, 0700) != 0 && errno != EEXIST) return -1;
    int used = snprintf(folder, sizeof folder, "%s/%s.%d.%llu", base, host, getpid(), (unsigned long long)vsk_now());
    if (used >= (int)sizeof folder) return -1;
    return mkdir(folder, 0700);
}

static void append_identity(const char *line) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/identity", folder) >= (int)sizeof path) return;
    long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    syscall(SYS_write, file, line, strlen(line));
    syscall(SYS_close, file);
}

/* The kernel's boot and the cores allowed: hosts with the same ones share those cores. */
static void machine_identity(const cpu_set_t *allowed, char *id, size_t size) {
    long file = syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC, 0);
    long got = file < 0 ? 0 : syscall(SYS_read, file, id, size - 1);
    id[got > 0 ? got : 0] = '\0';
    size_t used = strcspn(id, "\n");
    for (int first = 0; first < CPU_SETSIZE && used + 20 < size; first++) {
        if (!CPU_ISSET(first, allowed)) continue;
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, allowed)) last++;
        used += (size_t)snprintf(id + used, size - used, "/%d-%d", first, last);
        first = last;
    }
    id[used] = '\0';
    if (file >= 0) syscall(SYS_close, file);
}

static void first_identity(void) {
    char line[1024], host[256] = "", machine[256] = "";
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    gethostname(host, sizeof host - 1);
    machine_identity(&allowed, machine, sizeof machine);
    snprintf(line, sizeof line, "version=%d\nhost=%s\npid=%d\ncores=%ld\nmachine=%s\n", VSK_VERSION, host, getpid(),
             (long)CPU_COUNT(&allowed), machine);
    append_identity(line);
    if (getenv("DMLC_ROLE")) {
        const char *servers = getenv("DMLC_NUM_SERVER");
        snprintf(line, sizeof line, "role=%.32s\nservers=%d\n", getenv("DMLC_ROLE"), servers ? atoi(servers) : 1);
        append_identity(line);
    }
    const char *rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK"};
    const char *size_names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE"};
    for (int i = 0; i < 3; i++) {
        if (!getenv(rank_names[i]) || !getenv(size_names[i])) continue;
        snprintf(line, sizeof line, "rank=%d\nsize=%d\n", atoi(getenv(rank_names[i])), atoi(getenv(size_names[i])));
        append_identity(line);
        return;
    }
}

const char *vsk_folder(void) {
    static _Atomic int made;
    if (atomic_load_explicit(&made, memory_order_acquire)) return folder;
    if (!vsk_ready()) return NULL;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&made) && !folder_failed) {
        if (make_folder() == 0) {
            first_identity();
            atomic_store_explicit(&made, 1, memory_order_release);
        } else {
            folder_failed = 1;
            vsk_say("this process is not traced: cannot make a folder in %s (%s)", base, strerror(errno));
        }
    }
    pthread_mutex_unlock(&lock);
    return atomic_load(&made) ? folder : NULL;
}

void vsk_identity(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    if (vsk_folder()) append_identity(line);
}

/* ---- For the start-up hook and benchmarks, through ctypes on the preloaded library. ---- */

VSK_PUBLIC int vsketch_version(void) { return VSK_VERSION; }

VSK_PUBLIC int vsketch_ready(void) { return vsk_ready(); }

/* Start (1) or stop (0) recording from now on; operations already under way are finished. */
VSK_PUBLIC void vsketch_switch(int on) {
    if (!vsk_ready()) return;
    enabled = on;
    decide();
}

/* Operations pushed from now on belong to `step`; -1 before the first optimizer step. */
VSK_PUBLIC void vsketch_step(int step) {
    if (!vsk_ready()) return;
    atomic_store_explicit(&vsk_step, step, memory_order_relaxed);
    decide();
}

/* This process is part of a training job (the hook saw mxnet): follow its TCP traffic. */
VSK_PUBLIC void vsketch_join(void) { vsk_join(); }

VSK_PUBLIC const char *vsketch_folder(void) { return vsk_folder(); }

VSK_PUBLIC void vsketch_identity(const char *line) { vsk_identity("%s", line); }

VSK_PUBLIC int vsketch_recording(void) { return vsk_wanted(); }
