/* libvsketch.so: what a rank of a training job does, written down as it happens.
 *
 * The library is preloaded into the ranks. It does nothing in any program unless VSKETCH_DIR is set, and makes
 * no file until the first event. It never starts a thread; recording an event takes no lock and no memory.
 *
 * Files, on the local disk of every host:
 *
 *   $VSKETCH_DIR/<host>.<pid>.<start ns>/   one folder a process
 *     identity                              lines "key=value"; a later line wins (host, pid, rank, size, ...)
 *     <n>.<tid>.log                         one log a thread that recorded something
 *     hook.jsonl                            written by the start-up hook: names of tensors, settings
 *
 * A log is a header page of VSK_HEADER_BYTES and then records of 32 bytes. It grows in segments that are
 * allocated on disk before they are mapped, so a full disk ends the recording of that thread (told on stderr
 * and in the header) and never the training. The kernel owns the mapped pages: what was recorded survives
 * SIGKILL. A record is published by storing its second word last; the first zero `kind` ends the log.
 *
 * Record, little endian:
 *
 *   word 0   t_ns      CLOCK_MONOTONIC at the start
 *   word 1   dur_ns    32 bits; in units of 1,024 ns when VSK_FLAG_LONG is set
 *            kind      8 bits, enum vsk_kind
 *            flags     8 bits
 *            a         16 bits \
 *   word 2   b                  } by kind, see enum vsk_kind
 *   word 3   c                 /
 *
 * Environment (set by `vsketchdlc trace`):
 *   VSKETCH_DIR         folder of this recording, same path on every host
 *   VSKETCH_MAX_BYTES   limit for the logs of one process (default 1 GiB)
 *   VSKETCH_STEPS       "A:B": record steps A <= s < B only
 *   VSKETCH_EVERY       "N": of those, record every Nth
 *   VSKETCH_ARMED       "1": start switched off; vsketch_switch(1) or SIGUSR2 starts, SIGUSR2 again stops
 *   VSKETCH_TCP         "0": no TCP events
 *   VSKETCH_TCP_INFO_MS least time between two looks at a connection's TCP_INFO (default 100, 0: never)
 */
#ifndef VSKETCHDLC_VSKETCH_H
#define VSKETCHDLC_VSKETCH_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define VSK_VERSION 1
#define VSK_HEADER_BYTES 4096
#define VSK_SEGMENT_BYTES (256 * 1024)
#define VSK_PUBLIC __attribute__((visibility("default")))
#define VSK_TLS __thread __attribute__((tls_model("initial-exec")))

enum vsk_kind {
    VSK_END = 0,
    /* Engine operations of Horovod. b: operation number (low 32), name number of the hook (high 32).
     * PUSH: duration of the push call; a: enum vsk_op; c: priority (low 32), step (high 32).
     * READY: from the start of the operation (its inputs are written) until it is in Horovod's queue.
     * DONE: Horovod's callback; duration of MXNet's own completion. */
    VSK_PUSH = 1,
    VSK_READY = 2,
    VSK_DONE = 3,
    /* One MPI call. a: call (bits 0-4), type (5-9), op (10-13), both mpi_constant numbers (op counted from
     * K_SUM, 15 unknown; type 31 unknown). b: bytes sent by this rank. c: number of the call on its
     * communicator (low 32), root (32-47), communicator (48-55). */
    VSK_MPI = 4,
    /* A communicator seen for the first time. a: its number, b: its size, c: own rank in it. */
    VSK_COMM = 5,
    /* A mark of the start-up hook or of a marker operation. a: enum vsk_mark, b: step (signed). */
    VSK_MARK = 6,
    /* Counters since the start of a thread, process or machine, ns. The duration field is a thread's number.
     * THREAD_CPU b: user, c: system. THREAD_RUN b: on a core, c: runnable but waiting for a core.
     * PROCESS_CPU b: user, c: system. HOST_CPU b: busy, c: idle, all cores together. */
    VSK_THREAD_CPU = 7,
    VSK_THREAD_RUN = 8,
    VSK_PROCESS_CPU = 9,
    VSK_HOST_CPU = 10,
    /* A TCP connection seen for the first time, as text in several records. a: its number, b: eight bytes of the
     * text, c: part; see tcp.c. */
    VSK_CONN = 11,
    /* Bytes that went into or came out of a connection in one call. a: connection, b: bytes of this direction before
     * the call, c: bytes of the call. */
    VSK_SEND = 12,
    VSK_RECV = 13,
    /* The kernel's view of a connection. a: connection; duration: retransmitted segments in all; b: smoothed round
     * trip in us (low 32), congestion window in segments (high 32); c: delivery rate, bytes/s. */
    VSK_TCP_INFO = 14,
    /* A message of ps-lite (zmtp.c), from its first byte's call to the end of its last byte's. a: connection, b: bytes
     * (low 48) and length of its Meta (high 16), c: its first key. The Meta follows in records of the same thread.
     * META a: part, b and c: 16 bytes. */
    VSK_MESSAGE = 15,
    VSK_META = 16,
    /* What a lane of Fast Horovod did. a: lane (low 12) and enum vsk_phase (high 4), b: bytes, c: its process. */
    VSK_LANE = 17,
};

#define VSK_FLAG_LONG 1
#define VSK_FLAG_IN_PLACE 2
#define VSK_FLAG_MIDDLE 4 /* CONN: bytes went through it before we counted */
#define VSK_FLAG_END 8    /* CONN: the last part of the text */
#define VSK_FLAG_SENT 16  /* MESSAGE: sent, not received */

enum vsk_phase { VSK_LOCAL_SUM, VSK_LANE_REDUCE_SCATTER, VSK_LANE_ALLGATHER };

enum vsk_op { VSK_OP_OTHER, VSK_OP_ALLREDUCE, VSK_OP_BROADCAST, VSK_OP_ALLGATHER, VSK_OP_ALLTOALL, VSK_OP_REDUCESCATTER };

enum vsk_call {
    VSK_ALLREDUCE, VSK_BCAST, VSK_ALLGATHER, VSK_ALLGATHERV, VSK_ALLTOALL, VSK_ALLTOALLV, VSK_REDUCE_SCATTER,
    VSK_BARRIER, VSK_GATHER, VSK_GATHERV,
};

enum vsk_mark {
    VSK_FORWARD_BEGIN = 1,  /* the script starts to record a forward pass */
    VSK_BACKWARD_CALL = 2,  /* the script calls backward */
    VSK_FORWARD_END = 3,    /* marker: the loss is computed */
    VSK_BACKWARD_END = 4,   /* marker: the gradient that backward writes last is written */
    VSK_STEP_CALL = 5,      /* the script asks for gradients to be reduced */
    VSK_UPDATE_CALL = 6,    /* the script pushes the optimizer's operations */
    VSK_UPDATE_RETURN = 7,
    VSK_UPDATE_END = 8,     /* marker: the last weight is written */
};

struct vsk_record {
    uint64_t t_ns;
    uint64_t word1;
    uint64_t b;
    uint64_t c;
};

struct vsk_header {
    char magic[8]; /* "VSKLOG1" */
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t pid;
    uint32_t tid;
    uint32_t stopped; /* enum vsk_stop */
    uint64_t lost;    /* events dropped since recording stopped */
    uint64_t start_monotonic_ns;
    uint64_t start_wall_ns;
    char thread[16]; /* name of the thread when the log was made */
};

enum vsk_stop { VSK_RUNNING, VSK_STOPPED_BY_SIZE, VSK_STOPPED_BY_DISK };

static inline uint64_t vsk_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* state.c: whether to record at all. */
extern _Atomic int vsk_recording; /* 1 while events are wanted; read it before doing any work */
extern _Atomic int vsk_step;      /* step of operations pushed now; -1 before the first optimizer step */
extern _Atomic int vsk_under_way; /* recorded operations that are not done: their collectives are recorded too */
int vsk_ready(void);              /* 1 when this process is traced; the first call reads the environment */
const char *vsk_folder(void);     /* this process's folder, made on first use; NULL when it cannot be made */
void vsk_identity(const char *format, ...) __attribute__((format(printf, 1, 2))); /* append a line to identity */
void vsk_say(const char *format, ...) __attribute__((format(printf, 1, 2)));      /* one line on stderr */

static inline int vsk_wanted(void) {
    return vsk_ready() && atomic_load_explicit(&vsk_recording, memory_order_relaxed);
}

/* As vsk_wanted(), or operations that were wanted are still under way. */
static inline int vsk_wanted_now(void) {
    return atomic_load_explicit(&vsk_recording, memory_order_relaxed) ||
           atomic_load_explicit(&vsk_under_way, memory_order_relaxed) > 0;
}

/* tcp.c: the process has become part of a job; its TCP traffic is of interest from now on. */
void vsk_join(void);

/* log.c: the calling thread's log. */
void vsk_record(enum vsk_kind kind, uint64_t start_ns, uint64_t end_ns, unsigned flags, unsigned a, uint64_t b,
                uint64_t c);

#define VSK_THREADS 256
/* Numbers of the threads that have a log, up to VSK_THREADS of them; returns how many. */
int vsk_threads(uint32_t *tids);

/* gather.c: bring the logs of other hosts to rank 0's host over the job's own MPI. */
void vsk_gather_announce(void);    /* after MPI_Init: tell rank 0 that this rank is traced */
void vsk_gather_look(void);        /* rank 0, now and then: note who has announced itself */
void vsk_gather_at_finalize(void); /* before MPI_Finalize; ends the recording of this process */

#endif
