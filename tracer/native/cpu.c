/* Processor time: of every thread that has a log, of the process, and of the machine.
 *
 * Sampled by the hook at the start of a step, at most every SAMPLE_NS: reading /proc takes about 10 us a thread.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vsketch.h"

#define SAMPLE_NS 50000000u

static int read_text(const char *path, char *text, size_t room) {
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    long got = syscall(SYS_read, file, text, room - 1);
    syscall(SYS_close, file);
    if (got <= 0) return -1;
    text[got] = 0;
    return 0;
}

static uint64_t tick_ns(void) {
    static uint64_t ns;
    if (!ns) ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    return ns;
}

/* The record's duration field carries the thread's number. */
static void record(enum vsk_kind kind, uint64_t now, uint32_t tid, uint64_t b, uint64_t c) {
    vsk_record(kind, now, now + tid, 0, 0, b, c);
}

static void sample_thread(uint32_t tid) {
    char path[64], text[1024];
    unsigned long long user, kernel, run, wait;
    snprintf(path, sizeof path, "/proc/self/task/%u/stat", tid);
    if (read_text(path, text, sizeof text) != 0) return; /* it has ended */
    /* The name in parentheses may hold anything; the 12th and 13th fields after it are user and system ticks. */
    const char *rest = strrchr(text, ')');
    if (rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &kernel) == 2)
        record(VSK_THREAD_CPU, vsk_now(), tid, user * tick_ns(), kernel * tick_ns());
    snprintf(path, sizeof path, "/proc/self/task/%u/schedstat", tid);
    if (read_text(path, text, sizeof text) == 0 && sscanf(text, "%llu %llu", &run, &wait) == 2)
        record(VSK_THREAD_RUN, vsk_now(), tid, run, wait);
}

static void sample_host(void) {
    char text[512];
    unsigned long long field[8] = {0}; /* user nice system idle iowait irq softirq steal */
    if (read_text("/proc/stat", text, sizeof text) != 0) return;
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1], &field[2], &field[3],
               &field[4], &field[5], &field[6], &field[7]) < 4)
        return;
    uint64_t idle = field[3] + field[4];
    uint64_t busy = field[0] + field[1] + field[2] + field[5] + field[6] + field[7];
    record(VSK_HOST_CPU, vsk_now(), 0, busy * tick_ns(), idle * tick_ns());
}

static uint64_t ns_of(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

/* Called by one thread only. */
VSK_PUBLIC void vsketch_sample(void) {
    static uint64_t last;
    if (!vsk_wanted()) return;
    uint64_t now = vsk_now();
    if (now - last < SAMPLE_NS) return;
    last = now;
    uint32_t tids[VSK_THREADS];
    int count = vsk_threads(tids);
    for (int i = 0; i < count; i++) sample_thread(tids[i]);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    record(VSK_PROCESS_CPU, vsk_now(), 0, ns_of(usage.ru_utime), ns_of(usage.ru_stime));
    sample_host();
}
