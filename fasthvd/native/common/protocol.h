/* The whole protocol of the lanes, on one page.
 *
 *   rank ── control socket (Unix, SOCK_SEQPACKET) ──> lane i ── TCP ──> lane i of the next host ── ... ── ring
 *
 * All this once for every communicator that has lanes: a lane group of its own, with its own lanes, flows, token and
 * sequence numbers. Which call goes to which group is agreed by MPI calls inside that call (rank/communicators.c).
 *
 * 1. Set-up. The ranks of a host meet at the Unix socket of their leader. The leader starts k lanes; each gets
 *    CONTROL_CONFIG, one CONTROL_ATTACH per local rank (with that rank's socket, input memory and pidfd), connects to
 *    its next host, accepts its previous host, answers CONTROL_READY (or CONTROL_FAILED with the cause, and exits).
 * 2. Handshake of a ring connection: HELLO ->, <- CHALLENGE, PROOF -> . Both sides prove the session token with a
 *    keyed hash over lane, hosts and both nonces; the token itself never travels. Anything else is a stranger and is
 *    closed. When the ring stands the listening socket closes.
 * 3. Work. A rank posts CONTROL_JOB to every lane that has a share. The lanes read its input where it lies
 *    (process_vm_readv) if the kernel lets them, else the rank first copies it into its own memory area. A lane starts
 *    when all local ranks have posted, and sends FRAME_ARRIVE round the ring: when H-1 of them came in,
 *    all hosts are there, and only then does the time limit of a silent flow count.
 *    The n elements are cut into H segments, each segment into the lanes' slices, each slice into chunks. Step t
 *    (0 <= t < 2H-2): host h sends segment (h-t) mod H and receives segment (h-t-1) mod H; in the first H-1 steps it
 *    adds its own ranks' elements to what it received (reduce-scatter), then it only keeps (allgather). A chunk is
 *    sent as soon as the same chunk of the step before is in. Every frame repeats the job: a peer that does
 *    something else is an error (CAUSE_MISMATCH), never a wrong sum.
 * 4. End. The lane answers CONTROL_DONE, or CONTROL_FAILED with the cause and exits; its neighbours see the closed
 *    connection and do the same, so a broken ring is noticed on all hosts. Then all ranks vote; only when every rank
 *    had every lane's DONE is the result copied to the user's memory, else the call is done again over MPI.
 *
 * States of a lane (enum lane_state) and of the ring machine (enum ring_state) have the same names in
 * fasthvd/protocol.py. Integers are little-endian, as every host of a job must be (the magic number tells).
 */
#ifndef FASTHVD_PROTOCOL_H
#define FASTHVD_PROTOCOL_H

#include <stdint.h>
#include <sys/socket.h>

#define FASTHVD_PROTOCOL 1u
#define FRAME_MAGIC 0x4c564846u /* "FHVL" */
#define HELLO_MAGIC 0x48564846u /* "FHVH" */
enum { LANES_MAX = 64, HOSTS_MAX = 4096, LOCAL_MAX = 128, NAME_BYTES = 64, CAUSE_BYTES = 256, TOKEN_BYTES = 16 };
enum { LEADER_FD = 3 }; /* a lane's first descriptor: the control socket of its leader */
enum { SHARE_WHOLE = 65536, ELEMENTS_ALIGN = 16, MIN_CHUNK_BYTES = 4096, MAX_CHUNK_BYTES = 64 << 20 };

enum element_type { T_INT8, T_UINT8, T_INT16, T_UINT16, T_INT32, T_UINT32, T_INT64, T_UINT64, T_FLOAT16, T_FLOAT32, T_FLOAT64, TYPES };
enum operation { OP_SUM, OP_MIN, OP_MAX, OP_PROD, OPERATIONS };

enum lane_state { LANE_STARTING, LANE_CONNECTING, LANE_IDLE, LANE_GATHERING, LANE_RUNNING, LANE_FAILED };
enum ring_state { RING_IDLE, RING_ARRIVING, RING_RUNNING, RING_FINISHED, RING_FAILED };

/* Why something failed, most telling last: of several causes the ranks report the greatest. */
enum cause { CAUSE_NONE, CAUSE_FLOW_CLOSED, CAUSE_SILENT, CAUSE_HANDSHAKE, CAUSE_SYSTEM, CAUSE_STRANGER, CAUSE_STOPPED, CAUSE_DIED, CAUSE_MISMATCH };

/* What is summed; part of every frame. */
struct job_key {
    uint32_t comm; /* number of the lane group, made of its ranks; 0 for that of COMM_WORLD */
    uint8_t type, op;
    uint16_t reserved;
    uint64_t sequence;
    uint64_t count;              /* elements of the whole vector */
    uint32_t share_lo, share_hi; /* this lane's part of every segment, in 1/65536 */
    uint32_t chunk_bytes;
    uint32_t reserved2;
};

enum frame_kind { FRAME_ARRIVE = 1, FRAME_CHUNK = 2 };
struct frame {
    uint32_t magic;
    uint16_t kind;
    uint16_t origin; /* ARRIVE: the host that has arrived */
    uint32_t step;   /* CHUNK */
    uint32_t chunk;  /* CHUNK: number within the slice */
    uint32_t bytes;  /* payload after this header */
    uint32_t reserved;
    struct job_key job;
};

enum hello_kind { HELLO = 1, CHALLENGE = 2, PROOF = 3 };
struct hello {
    uint32_t magic, protocol;
    uint16_t kind, lane, from_host, hosts;
    uint64_t nonce;
    uint64_t mac; /* SipHash-2-4 with the session token; CHALLENGE and PROOF */
};

/* What a lane did in a job, in the order of the tracer's enum vsk_phase. The local sum runs along with the ring's steps;
 * LOCAL_SUM is from its first piece to its last, and only there when a host has several ranks. Times are CLOCK_MONOTONIC. */
enum phase { PHASE_LOCAL_SUM, PHASE_REDUCE_SCATTER, PHASE_ALLGATHER, PHASES };
struct phase_time {
    int64_t start_ns, end_ns; /* 0: the job had no such phase */
    uint64_t bytes;           /* LOCAL_SUM: of the slice; else: received */
};

enum control_kind { CONTROL_CONFIG = 1, CONTROL_ATTACH, CONTROL_READY, CONTROL_JOB, CONTROL_DONE, CONTROL_FAILED, CONTROL_WARN };
struct control {
    uint32_t kind;
    uint32_t cause;      /* FAILED: enum cause */
    struct job_key job;  /* JOB; DONE, FAILED: job.sequence */
    uint64_t area_bytes; /* JOB: size of the memory areas now; they only grow */
    uint64_t address;    /* JOB: the input in the rank's own memory, 0: it was copied into its area; ATTACH: a sample */
    uint64_t readable[LOCAL_MAX / 64]; /* READY: local ranks whose memory the lane may read */
    uint32_t local_rank;               /* ATTACH */
    uint32_t pid;                      /* ATTACH: of the rank; READY: of the lane */
    uint8_t sample[TOKEN_BYTES];       /* ATTACH: what is at `address` */
    union {
        char text[CAUSE_BYTES];            /* FAILED, WARN */
        struct phase_time phases[PHASES];  /* DONE */
    };
};

/* CONTROL_CONFIG, leader to lane, with the descriptors {result memory, board[, listening socket]}. */
struct lane_config {
    uint32_t kind, protocol;
    uint32_t lane, host, hosts, local_ranks;
    int64_t setup_ns, flow_ns, stall_ns; /* time limits: set-up, silent flow, warning about a late host */
    int64_t beat_ns;                     /* longest sleep while a job is posted, see the board */
    uint32_t pinned, reserved;
    uint8_t token[TOKEN_BYTES];
    char own_name[NAME_BYTES], next_name[NAME_BYTES], previous_name[NAME_BYTES];
    struct sockaddr_storage own_address, next_address;
};

/* The board: memory that lanes write and ranks read, one line per lane (64-byte aligned). */
struct lane_board {
    _Alignas(64) uint64_t started; /* sequence of the last job it started */
    uint64_t beat;                 /* grows every beat_ns while a job is posted: a lane that is stopped shows */
    uint64_t arrived;              /* sequence of the last job for which all hosts had arrived */
    uint64_t jobs, bytes_sent, bytes_received, busy_ns, wait_ns, retransmits;
    uint64_t flow_ns; /* time from all hosts arrived to done, summed */
};

#endif
