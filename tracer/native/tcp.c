/* TCP below everything: bytes into and out of every connection of a traced process.
 *
 * The position of a byte in its stream is the same for sender and receiver, so records of both ends fit together
 * by connection and offset, whatever library speaks. A descriptor is looked at once: class[fd] is 0 unknown,
 * 1 no TCP connection, else connection number + 2. close() and whatever makes a descriptor set it to 0.
 *
 * Counting starts when the process joins (MPI_Init, the hook's import of mxnet): a connection that is older is
 * marked with VSK_FLAG_MIDDLE, because its offsets do not start at its beginning.
 *
 * VSK_CONN comes as several records of the same a (the connection): c is the part, b eight bytes of text; the text
 * is "own address:port peer address:port library", the flag VSK_FLAG_END is set in the last part.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "vsketch.h"
#include "zmtp.h"

#define DESCRIPTORS 65536
#define CONNECTIONS 4094

_Atomic int vsk_joined;

/* struct tcp_info as kernels since 4.9 fill it; the C library's header stops at total_retrans. */
struct long_tcp_info {
    struct tcp_info base;
    uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
    uint32_t segments_out, segments_in, unsent_bytes, min_rtt, data_segments_in, data_segments_out;
    uint64_t delivery_rate;
};
_Static_assert(sizeof(struct tcp_info) == 104, "layout of struct tcp_info");

struct connection {
    _Atomic uint64_t sent, received;
    _Atomic uint64_t sampled_ns;
    struct zmtp out, in; /* one thread of ZeroMQ moves a connection's bytes */
};

static _Atomic uint16_t class[DESCRIPTORS];
static struct connection connections[CONNECTIONS];
static _Atomic uint32_t connection_count;
static uint64_t sample_ns;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void vsk_join(void) {
    if (!vsk_ready() || atomic_load(&vsk_joined)) return;
    const char *rate = getenv("VSKETCH_TCP_INFO_MS");
    double ms = rate ? atof(rate) : 100.0;
    sample_ns = ms > 0 ? (uint64_t)(ms * 1e6) : UINT64_MAX;
    const char *off = getenv("VSKETCH_TCP");
    if (off && off[0] == '0') return;
    atomic_store(&vsk_joined, 1);
}

static int address_text(const struct sockaddr_storage *address, char *text, size_t room) {
    char host[INET6_ADDRSTRLEN];
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *ip4 = (const void *)address;
        if (!inet_ntop(AF_INET, &ip4->sin_addr, host, sizeof host)) return -1;
        return snprintf(text, room, "%s:%d", host, ntohs(ip4->sin_port));
    }
    const struct sockaddr_in6 *ip6 = (const void *)address;
    if (IN6_IS_ADDR_V4MAPPED(&ip6->sin6_addr)) {
        if (!inet_ntop(AF_INET, &ip6->sin6_addr.s6_addr[12], host, sizeof host)) return -1;
        return snprintf(text, room, "%s:%d", host, ntohs(ip6->sin6_port));
    }
    if (!inet_ntop(AF_INET6, &ip6->sin6_addr, host, sizeof host)) return -1;
    return snprintf(text, room, "[%s]:%d", host, ntohs(ip6->sin6_port));
}

/* "own peer library", or -1 when the descriptor is no connected TCP socket. */
static int describe(int fd, const void *caller, char *text, size_t room) {
    struct sockaddr_storage own, peer;
    socklen_t own_size = sizeof own, peer_size = sizeof peer, type_size;
    int type = 0;
    type_size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 || type != SOCK_STREAM) return -1;
    if (getsockname(fd, (struct sockaddr *)&own, &own_size) != 0) return -1;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return -1;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0) return -1;
    int used = address_text(&own, text, room);
    if (used < 0) return -1;
    text[used++] = ' ';
    int more = address_text(&peer, text + used, room - (size_t)used);
    if (more < 0) return -1;
    used += more;
    Dl_info info;
    const char *library = dladdr(caller, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    return used + snprintf(text + used, room - (size_t)used, " %s", library ? library + 1 : "?");
}

/* Whether the program has already sent or read something: what only waits in the kernel does not count. */
static int used_before(int fd) {
    struct long_tcp_info info;
    socklen_t size = sizeof info;
    int unread = 0, unsent = 0;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 1;
    if (ioctl(fd, SIOCINQ, &unread) != 0 || ioctl(fd, SIOCOUTQ, &unsent) != 0) return 1;
    uint64_t acknowledged = info.bytes_acked > 0 ? info.bytes_acked - 1 : 0; /* the SYN counts as one */
    return info.bytes_received > (uint64_t)unread || acknowledged > 0 || unsent > 0;
}

/* The slow path, once a connection. */
static unsigned classify(int fd, const void *caller) {
    int kept = errno;
    char text[256];
    memset(text, 0, sizeof text);
    unsigned answer = 1;
    int length = describe(fd, caller, text, sizeof text);
    pthread_mutex_lock(&lock);
    unsigned known = atomic_load(&class[fd]);
    uint32_t number = atomic_load(&connection_count);
    if (known) {
        answer = known;
    } else if (length > 0 && number < CONNECTIONS) {
        atomic_store(&connection_count, number + 1);
        answer = number + 2;
    }
    pthread_mutex_unlock(&lock);
    if (!known && answer > 1) {
        uint64_t now = vsk_now();
        unsigned middle = used_before(fd) ? VSK_FLAG_MIDDLE : 0;
        for (int part = 0; part * 8 < length; part++) {
            uint64_t word;
            memcpy(&word, text + part * 8, 8);
            vsk_record(VSK_CONN, now, now, middle | (part * 8 + 8 >= length ? VSK_FLAG_END : 0), number, word,
                       (uint64_t)part);
        }
    }
    if (!known) atomic_store_explicit(&class[fd], (uint16_t)answer, memory_order_release);
    errno = kept;
    return answer;
}

/* Number of the connection behind `fd`, or -1. */
static int connection_of(int fd, const void *caller) {
    if (!atomic_load_explicit(&vsk_joined, memory_order_relaxed) || fd < 0 || fd >= DESCRIPTORS) return -1;
    unsigned known = atomic_load_explicit(&class[fd], memory_order_acquire);
    if (__builtin_expect(known == 0, 0)) known = classify(fd, caller);
    return (int)known - 2 < 0 ? -1 : (int)known - 2;
}

static void sample(int fd, int number, uint64_t now) {
    struct connection *connection = &connections[number];
    uint64_t last = atomic_load_explicit(&connection->sampled_ns, memory_order_relaxed);
    if (now - last < sample_ns || !atomic_compare_exchange_strong(&connection->sampled_ns, &last, now)) return;
    struct long_tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    int kept = errno;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
        vsk_record(VSK_TCP_INFO, now, now + info.base.tcpi_total_retrans, 0, (unsigned)number,
                   info.base.tcpi_rtt | (uint64_t)info.base.tcpi_snd_cwnd << 32, info.delivery_rate);
    errno = kept;
}

static void finish(int fd, int number, enum vsk_kind kind, uint64_t start, ssize_t bytes) {
    if (bytes <= 0) return;
    struct connection *connection = &connections[number];
    _Atomic uint64_t *counter = kind == VSK_SEND ? &connection->sent : &connection->received;
    uint64_t offset = atomic_fetch_add_explicit(counter, (uint64_t)bytes, memory_order_relaxed);
    if (!vsk_wanted_now()) return;
    int kept = errno;
    uint64_t now = vsk_now();
    vsk_record(kind, start, now, 0, (unsigned)number, offset, (uint64_t)bytes);
    if (kind == VSK_SEND) sample(fd, number, now);
    errno = kept;
}

static void forget(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS) atomic_store_explicit(&class[fd], 0, memory_order_release);
}

#define REAL(type, name)                                           \
    static _Atomic(type) cached;                                   \
    type real = atomic_load_explicit(&cached, memory_order_relaxed); \
    if (__builtin_expect(!real, 0)) {                              \
        real = (type)dlsym(RTLD_NEXT, name);                       \
        atomic_store(&cached, real);                               \
    }

/* ZeroMQ uses send and recv: only there the bytes are looked at. */
static void follow(int number, int sent, const void *data, ssize_t bytes, uint64_t start) {
    struct zmtp *stream = sent ? &connections[number].out : &connections[number].in;
    if (bytes > 0 && stream->phase != ZMTP_OTHER)
        vsk_zmtp(stream, number, sent, data, (size_t)bytes, start, vsk_now());
}

#define TRACED(kind, fd, call)                                             \
    int number = connection_of(fd, __builtin_return_address(0));           \
    if (number < 0) return call;                                           \
    uint64_t start = vsk_now();                                            \
    ssize_t bytes = call;                                                  \
    finish(fd, number, kind, start, bytes);                                \
    return bytes;

#define FOLLOWED(kind, fd, data, call)                                     \
    int number = connection_of(fd, __builtin_return_address(0));           \
    if (number < 0) return call;                                           \
    uint64_t start = vsk_now();                                            \
    ssize_t bytes = call;                                                  \
    finish(fd, number, kind, start, bytes);                                \
    follow(number, kind == VSK_SEND, data, bytes, start);                  \
    return bytes;

typedef ssize_t (*send_t)(int, const void *, size_t, int);
VSK_PUBLIC ssize_t send(int fd, const void *data, size_t size, int flags) {
    REAL(send_t, "send")
    FOLLOWED(VSK_SEND, fd, data, real(fd, data, size, flags))
}

typedef ssize_t (*sendmsg_t)(int, const struct msghdr *, int);
VSK_PUBLIC ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    REAL(sendmsg_t, "sendmsg")
    TRACED(VSK_SEND, fd, real(fd, message, flags))
}

typedef ssize_t (*write_t)(int, const void *, size_t);
VSK_PUBLIC ssize_t write(int fd, const void *data, size_t size) {
    REAL(write_t, "write")
    TRACED(VSK_SEND, fd, real(fd, data, size))
}

typedef ssize_t (*writev_t)(int, const struct iovec *, int);
VSK_PUBLIC ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev_t, "writev")
    TRACED(VSK_SEND, fd, real(fd, parts, count))
}

typedef ssize_t (*recv_t)(int, void *, size_t, int);
VSK_PUBLIC ssize_t recv(int fd, void *data, size_t size, int flags) {
    REAL(recv_t, "recv")
    if (flags & MSG_PEEK) return real(fd, data, size, flags);
    FOLLOWED(VSK_RECV, fd, data, real(fd, data, size, flags))
}

typedef ssize_t (*recvmsg_t)(int, struct msghdr *, int);
VSK_PUBLIC ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    REAL(recvmsg_t, "recvmsg")
    if (flags & MSG_PEEK) return real(fd, message, flags);
    TRACED(VSK_RECV, fd, real(fd, message, flags))
}

typedef ssize_t (*read_t)(int, void *, size_t);
VSK_PUBLIC ssize_t read(int fd, void *data, size_t size) {
    REAL(read_t, "read")
    TRACED(VSK_RECV, fd, real(fd, data, size))
}

typedef ssize_t (*readv_t)(int, const struct iovec *, int);
VSK_PUBLIC ssize_t readv(int fd, const struct iovec *parts, int count) {
    REAL(readv_t, "readv")
    TRACED(VSK_RECV, fd, real(fd, parts, count))
}

/* What glibc calls instead of recv and read in programs built with _FORTIFY_SOURCE. */
typedef ssize_t (*recv_chk_t)(int, void *, size_t, size_t, int);
VSK_PUBLIC ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
    REAL(recv_chk_t, "__recv_chk")
    if (flags & MSG_PEEK) return real(fd, data, size, room, flags);
    FOLLOWED(VSK_RECV, fd, data, real(fd, data, size, room, flags))
}

typedef ssize_t (*read_chk_t)(int, void *, size_t, size_t);
VSK_PUBLIC ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
    REAL(read_chk_t, "__read_chk")
    TRACED(VSK_RECV, fd, real(fd, data, size, room))
}

typedef int (*close_t)(int);
VSK_PUBLIC int close(int fd) {
    REAL(close_t, "close")
    forget(fd);
    return real(fd);
}

typedef int (*socket_t)(int, int, int);
VSK_PUBLIC int socket(int domain, int type, int protocol) {
    REAL(socket_t, "socket")
    int fd = real(domain, type, protocol);
    forget(fd);
    return fd;
}

typedef int (*accept_t)(int, struct sockaddr *, socklen_t *);
VSK_PUBLIC int accept(int listener, struct sockaddr *address, socklen_t *size) {
    REAL(accept_t, "accept")
    int fd = real(listener, address, size);
    forget(fd);
    return fd;
}

typedef int (*accept4_t)(int, struct sockaddr *, socklen_t *, int);
VSK_PUBLIC int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags) {
    REAL(accept4_t, "accept4")
    int fd = real(listener, address, size, flags);
    forget(fd);
    return fd;
}

typedef int (*dup2_t)(int, int);
VSK_PUBLIC int dup2(int from, int to) {
    REAL(dup2_t, "dup2")
    forget(to);
    return real(from, to);
}

typedef int (*dup3_t)(int, int, int);
VSK_PUBLIC int dup3(int from, int to, int flags) {
    REAL(dup3_t, "dup3")
    forget(to);
    return real(from, to, flags);
}
