/* The logs of other hosts come to rank 0's host over the job's own MPI: no shared filesystem is assumed.
 *
 * Any rank may run without this library (it is not installed on its host), so nothing here is a collective:
 *
 *   HELLO    rank r -> 0   after MPI_Init: where r's folder is; small enough to leave at once
 *   WELCOME  0 -> r        when 0 has read the hello (it looks now and then); r knows that 0 will ask
 *   VERDICT  0 -> r        at MPI_Finalize: 'Y' send your files, 'N' they can be read here
 *   FILE     r -> 0        a file's name and size, its bytes in pieces; an empty name ends
 *   KEPT     0 -> r        all is on rank 0's disk: r removes its folder ('F': it is not, r keeps it)
 *
 * Point-to-point on MPI_COMM_WORLD with tags of our own. Where rank 0 stays silent the files remain, and
 * `vsketchdlc collect` fetches them.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mpi_abi.h"
#include "vsketch.h"

enum tag { TAG_HELLO = 31011, TAG_WELCOME, TAG_VERDICT, TAG_FILE, TAG_KEPT };

#define PIECE_BYTES (1 << 22)
#define HELLO_WAIT_NS 2000000000ull
#define VERDICT_WAIT_NS 10000000000ull
#define STUCK_NS 60000000000ull

struct hello {
    char host[64];
    char folder[512];
};

struct file_header {
    char name[128];
    uint64_t bytes;
};

static struct {
    int (*isend)(const void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *);
    int (*send)(const void *, int, mpi_handle, int, int, mpi_handle);
    int (*recv)(void *, int, mpi_handle, int, int, mpi_handle, void *);
    int (*iprobe)(int, int, mpi_handle, int *, void *);
    int (*request_free)(mpi_handle *);
    struct mpi_abi abi;
    mpi_handle world, byte;
    int rank, size, usable;
    struct hello mine;
    struct hello *peers; /* rank 0: by rank, empty folder = silent */
    int silent;
} mpi;

static int load(void) {
    if (mpi_abi_load(&mpi.abi) != 0) return -1;
    mpi.isend = (int (*)(const void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *))mpi_next("PMPI_Isend");
    mpi.send = (int (*)(const void *, int, mpi_handle, int, int, mpi_handle))mpi_next("PMPI_Send");
    mpi.recv = (int (*)(void *, int, mpi_handle, int, int, mpi_handle, void *))mpi_next("PMPI_Recv");
    mpi.iprobe = (int (*)(int, int, mpi_handle, int *, void *))mpi_next("PMPI_Iprobe");
    mpi.request_free = (int (*)(mpi_handle *))mpi_next("PMPI_Request_free");
    int (*rank_of)(mpi_handle, int *) = (int (*)(mpi_handle, int *))mpi_next("PMPI_Comm_rank");
    int (*size_of)(mpi_handle, int *) = (int (*)(mpi_handle, int *))mpi_next("PMPI_Comm_size");
    if (!mpi.isend || !mpi.send || !mpi.recv || !mpi.iprobe || !mpi.request_free || !rank_of || !size_of) return -1;
    mpi.world = mpi.abi.constant[K_COMM_WORLD];
    mpi.byte = mpi.abi.constant[K_BYTE];
    if (rank_of(mpi.world, &mpi.rank) != 0 || size_of(mpi.world, &mpi.size) != 0) return -1;
    return 0;
}

/* Source of a waiting message with `tag` from `source`, or -1. */
static int waiting(int source, enum tag tag) {
    char status[MPI_STATUS_ROOM];
    int there = 0, from;
    if (mpi.iprobe(source, tag, mpi.world, &there, status) != 0 || !there) return -1;
    memcpy(&from, status + mpi.abi.status_source_at, sizeof from);
    return from;
}

static int wait_for(int source, enum tag tag, uint64_t limit_ns) {
    uint64_t start = vsk_now();
    int from;
    while ((from = waiting(source, tag)) < 0) {
        if (limit_ns && vsk_now() - start > limit_ns) return -1;
        usleep(500);
    }
    return from;
}

static void receive(void *data, size_t bytes, int from, enum tag tag) {
    mpi.recv(data, (int)bytes, mpi.byte, from, tag, mpi.world, mpi.abi.status_ignore);
}

static void post(const void *data, size_t bytes, int to, enum tag tag) {
    mpi_handle request = 0;
    if (mpi.isend(data, (int)bytes, mpi.byte, to, tag, mpi.world, &request) == 0) mpi.request_free(&request);
}

void vsk_gather_announce(void) {
    const char *folder = vsk_folder();
    if (!folder || strlen(folder) >= sizeof mpi.mine.folder || load() != 0) return;
    gethostname(mpi.mine.host, sizeof mpi.mine.host - 1);
    strcpy(mpi.mine.folder, folder);
    mpi.usable = mpi.size > 1;
    if (!mpi.usable) return;
    if (mpi.rank != 0) {
        post(&mpi.mine, sizeof mpi.mine, 0, TAG_HELLO);
        return;
    }
    mpi.peers = calloc((size_t)mpi.size, sizeof *mpi.peers);
    mpi.silent = mpi.size - 1;
    if (!mpi.peers) mpi.usable = 0;
}

void vsk_gather_look(void) {
    static const char welcome = 'W';
    if (!mpi.usable || mpi.rank != 0) return;
    int from;
    while (mpi.silent > 0 && (from = waiting(mpi.abi.any_source, TAG_HELLO)) >= 0) {
        struct hello *peer = &mpi.peers[from];
        receive(peer, sizeof *peer, from, TAG_HELLO);
        peer->host[sizeof peer->host - 1] = peer->folder[sizeof peer->folder - 1] = 0;
        mpi.silent--;
        vsk_identity("peer=%d %s %s", from, peer->host, peer->folder);
        post(&welcome, 1, from, TAG_WELCOME);
    }
}

static int visible_here(const struct hello *peer) {
    char path[600];
    snprintf(path, sizeof path, "%s/identity", peer->folder);
    return access(path, R_OK) == 0;
}

static int write_all(int file, const char *data, size_t bytes) {
    while (bytes > 0) {
        long done = syscall(SYS_write, file, data, bytes);
        if (done <= 0) return -1;
        data += done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* Receive one file into `folder`; 1 more may come, 0 that was the end, -1 the sender is stuck. Sets *failed
 * when it cannot be written here. */
static int receive_file(int from, const char *folder, char *piece, int *failed) {
    struct file_header header;
    if (wait_for(from, TAG_FILE, STUCK_NS) < 0) return -1;
    receive(&header, sizeof header, from, TAG_FILE);
    header.name[sizeof header.name - 1] = 0;
    if (!header.name[0]) return 0;
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, header.name);
    int file = -1;
    if (!strchr(header.name, '/'))
        file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) *failed = 1;
    for (uint64_t got = 0; got < header.bytes;) {
        size_t bytes = header.bytes - got < PIECE_BYTES ? (size_t)(header.bytes - got) : PIECE_BYTES;
        receive(piece, bytes, from, TAG_FILE);
        if (file >= 0 && write_all(file, piece, bytes) != 0) *failed = 1;
        got += bytes;
    }
    if (file >= 0) syscall(SYS_close, file);
    return 1;
}

static void fetch(int from, char *piece) {
    const char *base_end = strrchr(mpi.mine.folder, '/');
    const char *name = strrchr(mpi.peers[from].folder, '/');
    char folder[640];
    int failed = 0, more;
    snprintf(folder, sizeof folder, "%.*s%s", (int)(base_end - mpi.mine.folder), mpi.mine.folder, name ? name : "/");
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) failed = 1;
    while ((more = receive_file(from, folder, piece, &failed)) > 0) {
    }
    if (failed || more < 0)
        vsk_say("the trace of rank %d stays on host %s in %s: %s; fetch it with 'vsketchdlc collect'", from,
                mpi.peers[from].host, mpi.peers[from].folder, failed ? "cannot be written here" : "it is silent");
    if (more == 0) mpi.send(failed ? "F" : "K", 1, mpi.byte, from, TAG_KEPT, mpi.world);
}

static void collect_at_rank_0(void) {
    uint64_t start = vsk_now();
    vsk_gather_look();
    while (mpi.silent > 0 && vsk_now() - start < HELLO_WAIT_NS) {
        usleep(1000);
        vsk_gather_look();
    }
    char *piece = malloc(PIECE_BYTES);
    for (int rank = 1; rank < mpi.size; rank++) {
        if (!mpi.peers[rank].folder[0]) continue; /* named as missing by whoever reads the folder */
        int wanted = piece && !visible_here(&mpi.peers[rank]);
        mpi.send(wanted ? "Y" : "N", 1, mpi.byte, rank, TAG_VERDICT, mpi.world);
        if (wanted) fetch(rank, piece);
    }
    free(piece);
}

static void send_file(const char *name, char *piece) {
    struct file_header header = {.bytes = 0};
    char path[800];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", mpi.mine.folder, name);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) != 0 || strlen(name) >= sizeof header.name) {
        if (file >= 0) syscall(SYS_close, file);
        return;
    }
    strcpy(header.name, name);
    header.bytes = (uint64_t)about.st_size;
    mpi.send(&header, sizeof header, mpi.byte, 0, TAG_FILE, mpi.world);
    for (uint64_t sent = 0; sent < header.bytes;) {
        size_t bytes = header.bytes - sent < PIECE_BYTES ? (size_t)(header.bytes - sent) : PIECE_BYTES;
        for (size_t have = 0; have < bytes;) {
            long got = syscall(SYS_read, file, piece + have, bytes - have);
            if (got <= 0) { /* cut short under us: the announced size must be kept */
                memset(piece + have, 0, bytes - have);
                break;
            }
            have += (size_t)got;
        }
        mpi.send(piece, (int)bytes, mpi.byte, 0, TAG_FILE, mpi.world);
        sent += bytes;
    }
    syscall(SYS_close, file);
}

static void for_each_file(void (*act)(const char *name, char *piece), char *piece) {
    DIR *folder = opendir(mpi.mine.folder);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.') act(entry->d_name, piece);
    if (folder) closedir(folder);
}

static void remove_file(const char *name, char *piece) {
    (void)piece;
    char path[800];
    snprintf(path, sizeof path, "%s/%s", mpi.mine.folder, name);
    unlink(path);
}

static void remove_folder(void) {
    for_each_file(remove_file, NULL);
    rmdir(mpi.mine.folder);
    char *end = strrchr(mpi.mine.folder, '/');
    *end = 0;
    rmdir(mpi.mine.folder); /* only the last one of this host succeeds */
}

static void send_to_rank_0(void) {
    char answer = 0;
    /* Welcomed: rank 0 has the library and will ask, however late it comes. Else do not wait for ever. */
    uint64_t limit = waiting(0, TAG_WELCOME) >= 0 ? 0 : VERDICT_WAIT_NS;
    if (wait_for(0, TAG_VERDICT, limit) < 0) return;
    receive(&answer, 1, 0, TAG_VERDICT);
    if (waiting(0, TAG_WELCOME) >= 0) {
        char welcome;
        receive(&welcome, 1, 0, TAG_WELCOME);
    }
    if (answer != 'Y') return;
    char *piece = malloc(PIECE_BYTES);
    if (piece) for_each_file(send_file, piece);
    free(piece);
    struct file_header end = {.bytes = 0};
    mpi.send(&end, sizeof end, mpi.byte, 0, TAG_FILE, mpi.world);
    receive(&answer, 1, 0, TAG_KEPT);
    if (answer == 'K') remove_folder();
}

void vsk_gather_at_finalize(void) {
    atomic_store(&vsk_recording, 0);
    if (!mpi.usable) return;
    vsk_identity("finalized=1");
    if (mpi.rank == 0)
        collect_at_rank_0();
    else
        send_to_rank_0();
}
