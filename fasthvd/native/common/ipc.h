/* Messages with descriptors over Unix sockets, and memory areas that only grow. */
#ifndef FASTHVD_IPC_H
#define FASTHVD_IPC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { IPC_FDS_MAX = 80 };

/* One message with `n` descriptors. Bytes, or -1 with errno; 0 at the end of the stream. */
ssize_t ipc_send(int socket, const void *data, size_t bytes, const int *fds, int n);
/* Receives into `data`; at most `room` descriptors, `*n` are there; more than `room` are closed. */
ssize_t ipc_receive(int socket, void *data, size_t bytes, int *fds, int room, int *n);
/* The same with a deadline: -1 with ETIMEDOUT when nothing comes. */
ssize_t ipc_receive_until(int socket, void *data, size_t bytes, int *fds, int room, int *n, int64_t deadline_ns);
void close_all(const int *fds, int n);

/* A memfd mapped by several processes. The owner grows it; the others map what they need of it. */
struct area {
    int fd;
    char *at;
    size_t mapped;
};

bool area_create(struct area *area, const char *name);
/* Owner: makes it at least `bytes` long, its memory really allocated, and maps it. False with errno. */
bool area_grow(struct area *area, size_t bytes);
/* Anyone: maps `bytes` of it. */
bool area_map(struct area *area, size_t bytes);
void area_close(struct area *area);
/* Moves the memory of whole huge pages in [at, at + bytes) into huge pages now, if the kernel can: copies, reads by
 * another process and sends by page cost half of it and less. */
void huge_pages(const void *at, size_t bytes);
#endif
