#define _GNU_SOURCE
#include "ipc.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
enum { HUGE_BYTES = 2 << 20 };

union fd_space {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * IPC_FDS_MAX)];
};

ssize_t ipc_send(int socket, const void *data, size_t bytes, const int *fds, int n)
{
    union fd_space space;
    struct iovec part = {(void *)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        memset(&space, 0, sizeof space);
        message.msg_control = space.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)n);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static void take_fds(struct msghdr *message, int *fds, int room, int *n)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        int got = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < got; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + sizeof(int) * (size_t)i, sizeof fd);
            if (*n < room)
                fds[(*n)++] = fd;
            else
                close(fd);
        }
    }
}

ssize_t ipc_receive(int socket, void *data, size_t bytes, int *fds, int room, int *n)
{
    union fd_space space;
    struct iovec part = {data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof space};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    int found = 0;
    if (got >= 0)
        take_fds(&message, fds, room, &found);
    if (n != NULL)
        *n = found;
    return got;
}

ssize_t ipc_receive_until(int socket, void *data, size_t bytes, int *fds, int room, int *n, int64_t deadline_ns)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    for (;;) {
        int ready = poll(&wait, 1, ms_until(deadline_ns));
        if (ready > 0)
            return ipc_receive(socket, data, bytes, fds, room, n);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
}

void close_all(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static size_t page_end(size_t bytes)
{
    const size_t page = 1 << 16; /* the largest of any architecture */
    return (bytes + page - 1) / page * page;
}

bool area_create(struct area *area, const char *name)
{
    *area = (struct area){.fd = memfd_create(name, MFD_CLOEXEC)};
    return area->fd >= 0;
}

/* Large areas lie at multiples of a huge page, so that the kernel can map them with huge pages. */
static void *map_aligned(int fd, size_t bytes)
{
    if (bytes < HUGE_BYTES)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *room = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    size_t before = -(uintptr_t)room % HUGE_BYTES;
    void *at = mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        munmap(room, bytes + HUGE_BYTES);
        return MAP_FAILED;
    }
    if (before > 0)
        munmap(room, before);
    munmap(room + before + bytes, HUGE_BYTES - before);
    return at;
}

bool area_map(struct area *area, size_t bytes)
{
    if (bytes <= area->mapped)
        return true;
    bytes = page_end(bytes);
    void *at = map_aligned(area->fd, bytes);
    if (at == MAP_FAILED)
        return false;
    madvise(at, bytes, MADV_DONTFORK); /* no business of children that the user's code forks */
    if (area->at != NULL)
        munmap(area->at, area->mapped);
    area->at = at;
    area->mapped = bytes;
    return true;
}

void huge_pages(const void *at, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)at + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES, end = ((uintptr_t)at + bytes) / HUGE_BYTES * HUGE_BYTES;
    int error = errno;
    if (end > begin)
        madvise((void *)begin, end - begin, MADV_COLLAPSE); /* a kernel that cannot leaves them as they are */
    errno = error;
}

bool area_grow(struct area *area, size_t bytes)
{
    if (bytes <= area->mapped)
        return true;
    bytes = page_end(bytes);
    /* Allocated now: memory that runs out is an error here, not a SIGBUS in the middle of a sum. */
    int error;
    do
        error = fallocate(area->fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    while (error == EINTR);
    if (error != 0) {
        errno = error;
        return false;
    }
    if (!area_map(area, bytes))
        return false;
    huge_pages(area->at, bytes);
    return true;
}

void area_close(struct area *area)
{
    if (area->at != NULL)
        munmap(area->at, area->mapped);
    if (area->fd >= 0)
        close(area->fd);
    *area = (struct area){.fd = -1};
}
