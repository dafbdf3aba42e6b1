/* One memory-mapped log a thread; see vsketch.h for what a log is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vsketch.h"

struct thread_log {
    struct vsk_record *next, *end; /* of the mapped segment */
    void *segment;
    struct vsk_header *header;
    off_t file_end;
    char path[];
};

static VSK_TLS struct thread_log *mine;
static VSK_TLS int no_log; /* this thread cannot have a log, or has ended */

static pthread_key_t at_thread_end;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t log_number;
static _Atomic int64_t bytes_left;
static _Atomic uint32_t thread_ids[VSK_THREADS];
static _Atomic uint64_t homeless; /* events of threads that could not have a log */

static void release(void *data) {
    struct thread_log *log = data;
    mine = NULL;
    no_log = 1;
    if (log->segment) munmap(log->segment, VSK_SEGMENT_BYTES);
    munmap(log->header, VSK_HEADER_BYTES);
    free(log);
}

static void prepare(void) {
    const char *limit = getenv("VSKETCH_MAX_BYTES");
    int64_t bytes = limit ? atoll(limit) : 0;
    atomic_store(&bytes_left, bytes > 0 ? bytes : (int64_t)1 << 30);
    pthread_key_create(&at_thread_end, release);
}

/* Disk space first, then the mapping: writing to it can then never fail. The file is opened by its name each
 * time, so no descriptor of ours can be mistaken for one of the program's. */
static void *extend(const char *path, off_t from, size_t bytes) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return NULL;
    void *place = NULL;
    int error = fallocate(file, 0, from, (off_t)bytes) == 0 ? 0 : errno;
    if (error == EOPNOTSUPP) error = posix_fallocate(file, from, (off_t)bytes);
    if (error == 0) {
        place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, from);
        if (place == MAP_FAILED) place = NULL, error = errno;
    }
    syscall(SYS_close, file);
    errno = error;
    return place;
}

static void fill_header(struct vsk_header *header) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    header->version = VSK_VERSION;
    header->header_bytes = VSK_HEADER_BYTES;
    header->record_bytes = sizeof(struct vsk_record);
    header->pid = (uint32_t)getpid();
    header->tid = (uint32_t)syscall(SYS_gettid);
    header->start_monotonic_ns = vsk_now();
    header->start_wall_ns = (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
    prctl(PR_GET_NAME, header->thread);
    atomic_thread_fence(memory_order_release);
    memcpy(header->magic, "VSKLOG1", 8);
}

static struct thread_log *open_log(void) {
    const char *folder = vsk_folder();
    if (!folder) return NULL;
    pthread_once(&key_once, prepare);
    size_t room = strlen(folder) + 40;
    struct thread_log *log = calloc(1, sizeof *log + room);
    if (!log) return NULL;
    uint32_t number = atomic_fetch_add(&log_number, 1);
    snprintf(log->path, room, "%s/%u.%ld.log", folder, number, syscall(SYS_gettid));
    log->header = extend(log->path, 0, VSK_HEADER_BYTES);
    if (!log->header) {
        vsk_say("tracing of a thread stopped, training goes on: %s: %s", log->path, strerror(errno));
        free(log);
        return NULL;
    }
    fill_header(log->header);
    if (number < VSK_THREADS) atomic_store(&thread_ids[number], log->header->tid);
    log->file_end = VSK_HEADER_BYTES;
    pthread_setspecific(at_thread_end, log);
    return log;
}

int vsk_threads(uint32_t *tids) {
    int count = 0;
    for (uint32_t i = 0, end = atomic_load(&log_number); i < end && i < VSK_THREADS; i++) {
        uint32_t tid = atomic_load_explicit(&thread_ids[i], memory_order_relaxed);
        if (tid) tids[count++] = tid;
    }
    return count;
}

static int stop(struct thread_log *log, enum vsk_stop why, const char *reason) {
    static _Atomic int told;
    log->header->stopped = why;
    if (!atomic_exchange(&told, 1)) vsk_say("tracing stopped, training goes on: %s (%s)", reason, log->path);
    return -1;
}

/* The slow path, once in 8,192 events of a thread. */
static int next_segment(struct thread_log *log) {
    if (log->header->stopped) return -1;
    if (log->segment) munmap(log->segment, VSK_SEGMENT_BYTES);
    log->segment = NULL;
    log->next = log->end = NULL;
    if (atomic_fetch_sub(&bytes_left, VSK_SEGMENT_BYTES) < VSK_SEGMENT_BYTES)
        return stop(log, VSK_STOPPED_BY_SIZE, "the size limit is reached; raise --max-mb or narrow --steps");
    log->segment = extend(log->path, log->file_end, VSK_SEGMENT_BYTES);
    if (!log->segment) return stop(log, VSK_STOPPED_BY_DISK, strerror(errno));
    log->file_end += VSK_SEGMENT_BYTES;
    log->next = log->segment;
    log->end = log->next + VSK_SEGMENT_BYTES / sizeof(struct vsk_record);
    return 0;
}

static struct vsk_record *claim(void) {
    struct thread_log *log = mine;
    if (__builtin_expect(!log, 0)) {
        if (no_log) return NULL;
        no_log = 1; /* whatever open_log calls must not come here again */
        log = open_log();
        if (!log) return NULL;
        mine = log;
        no_log = 0;
    }
    if (__builtin_expect(log->next == log->end, 0) && next_segment(log) != 0) {
        log->header->lost++;
        return NULL;
    }
    return log->next++;
}

void vsk_record(enum vsk_kind kind, uint64_t start_ns, uint64_t end_ns, unsigned flags, unsigned a, uint64_t b,
                uint64_t c) {
    struct vsk_record *record = claim();
    if (!record) {
        if (!mine) atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
        return;
    }
    uint64_t duration = end_ns - start_ns;
    if (__builtin_expect(duration > UINT32_MAX, 0)) {
        duration >>= 10;
        flags |= VSK_FLAG_LONG;
        if (duration > UINT32_MAX) duration = UINT32_MAX;
    }
    record->t_ns = start_ns;
    record->b = b;
    record->c = c;
    uint64_t word = duration | (uint64_t)kind << 32 | (uint64_t)(flags & 0xff) << 40 | (uint64_t)(a & 0xffff) << 48;
    __atomic_store_n(&record->word1, word, __ATOMIC_RELEASE);
}

/* Events that no log could take: for the trace's count of lost events. */
VSK_PUBLIC uint64_t vsketch_homeless(void) { return atomic_load(&homeless); }

/* A mark of the start-up hook. */
VSK_PUBLIC void vsketch_mark(int mark, int step) {
    if (!vsk_ready()) return;
    uint64_t now = vsk_now();
    vsk_record(VSK_MARK, now, now, 0, (unsigned)mark, (uint64_t)(int64_t)step, 0);
}

/* A lane of Fast Horovod worked for this rank: called by libfasthvd, in the leader of a host, if this library is
 * there (dlsym). Times are CLOCK_MONOTONIC ns; `phase` is an enum vsk_phase; `process` is the lane's number. */
VSK_PUBLIC void vsketch_lane(int lane, int phase, uint64_t start_ns, uint64_t end_ns, uint64_t bytes, int process) {
    if (!vsk_ready() || !vsk_wanted_now()) return;
    vsk_record(VSK_LANE, start_ns, end_ns, 0, (unsigned)(lane & 0xfff) | (unsigned)phase << 12, bytes,
               (uint64_t)process);
}

/* MXNet's EngineSyncFunc: an operation pushed by the hook that runs when the arrays it reads are written. */
VSK_PUBLIC void vsketch_marker(void *run_context, void *mark_and_step) {
    (void)run_context;
    uintptr_t packed = (uintptr_t)mark_and_step;
    vsketch_mark((int)(packed & 0xff), (int)(packed >> 8));
}
