#define _GNU_SOURCE
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int prefix_of(const uint8_t *mask, int bytes)
{
    int bits = 0;
    for (int i = 0; i < bytes; i++)
        bits += __builtin_popcount(mask[i]);
    return bits;
}

static bool from_ifaddrs(const struct ifaddrs *entry, struct address *out)
{
    if (entry->ifa_addr == NULL || entry->ifa_netmask == NULL || !(entry->ifa_flags & IFF_UP))
        return false;
    *out = (struct address){.family = entry->ifa_addr->sa_family, .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0};
    snprintf(out->iface, sizeof out->iface, "%s", entry->ifa_name);
    if (out->family == AF_INET) {
        memcpy(out->ip, &((struct sockaddr_in *)entry->ifa_addr)->sin_addr, 4);
        out->prefix = (uint16_t)prefix_of((const uint8_t *)&((struct sockaddr_in *)entry->ifa_netmask)->sin_addr, 4);
        return true;
    }
    if (out->family == AF_INET6) {
        const struct sockaddr_in6 *six = (struct sockaddr_in6 *)entry->ifa_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
            return false; /* its scope means nothing on another host */
        memcpy(out->ip, &six->sin6_addr, 16);
        out->prefix = (uint16_t)prefix_of((const uint8_t *)&((struct sockaddr_in6 *)entry->ifa_netmask)->sin6_addr, 16);
        return true;
    }
    return false;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, int bits)
{
    if (memcmp(a, b, (size_t)bits / 8) != 0)
        return false;
    int rest = bits % 8;
    return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

bool same_address(const struct address *a, const struct address *b)
{
    return a->family == b->family && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

bool same_network(const struct address *a, const struct address *b)
{
    return a->family == b->family && a->prefix == b->prefix && same_bits(a->ip, b->ip, a->prefix);
}

/* Is `address` what one word of an interface list names: "eth0", or a network as "10.1.0.0/16"? */
static bool named_by(const struct address *address, const char *word)
{
    const char *slash = strchr(word, '/');
    if (slash == NULL)
        return strcmp(word, address->iface) == 0;
    char base[64];
    snprintf(base, sizeof base, "%.*s", (int)(slash - word), word);
    uint8_t ip[16];
    int bits = atoi(slash + 1), family = strchr(base, ':') != NULL ? AF_INET6 : AF_INET;
    return family == address->family && bits >= 0 && bits <= (family == AF_INET ? 32 : 128) && inet_pton(family, base, ip) == 1 &&
           same_bits(ip, address->ip, bits);
}

static bool in_list(const struct address *address, const char *list)
{
    char words[256], *rest;
    snprintf(words, sizeof words, "%s", list);
    for (char *word = strtok_r(words, ", ", &rest); word != NULL; word = strtok_r(NULL, ", ", &rest))
        if (named_by(address, word))
            return true;
    return false;
}

/* Addresses that `word` names, or, without one, all that are loopback or not and not in the list `without`. */
static int collect(struct ifaddrs *list, const char *word, bool loopback, const char *without, struct address *found, int n)
{
    struct address address;
    /* IPv4 first: a name has both, and the peers must pick the same family. */
    for (int family = AF_INET; family != 0; family = family == AF_INET ? AF_INET6 : 0)
        for (struct ifaddrs *entry = list; entry != NULL && n < ADDRESSES_MAX; entry = entry->ifa_next) {
            if (!from_ifaddrs(entry, &address) || address.family != family)
                continue;
            if (word != NULL ? named_by(&address, word) : (bool)address.loopback == loopback && !in_list(&address, without))
                found[n++] = address;
        }
    return n;
}

bool address_named(const char *iface) { return *iface != '\0' && *iface != '^'; }

int addresses_of_host(const char *iface, struct address found[ADDRESSES_MAX])
{
    struct ifaddrs *list;
    int n = 0;
    if (getifaddrs(&list) != 0)
        return 0;
    if (!address_named(iface)) {
        const char *without = *iface == '^' ? iface + 1 : "";
        n = collect(list, NULL, false, without, found, n);
        n = collect(list, NULL, true, without, found, n);
        freeifaddrs(list);
        return n;
    }
    char words[256], *rest;
    snprintf(words, sizeof words, "%s", iface);
    for (char *word = strtok_r(words, ", ", &rest); word != NULL; word = strtok_r(NULL, ", ", &rest)) {
        int before = n;
        n = collect(list, word, false, "", found, n);
        for (; n > before + 1; n--) /* one address per named interface: lanes are spread over interfaces */
            memset(&found[n - 1], 0, sizeof found[n - 1]);
    }
    freeifaddrs(list);
    return n;
}

void address_to_socket(const struct address *address, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        memcpy(&six->sin6_addr, address->ip, 16);
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)out;
        four->sin_family = AF_INET;
        four->sin_port = htons(address->port);
        memcpy(&four->sin_addr, address->ip, 4);
    }
}

static bool try_port(int fd, const struct address *address, int port)
{
    struct sockaddr_storage at;
    struct address here = *address;
    here.port = (uint16_t)port;
    address_to_socket(&here, &at);
    socklen_t length = address->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    return bind(fd, (struct sockaddr *)&at, length) == 0 && listen(fd, 16) == 0;
}

int address_listen(struct address *address, int first, int last)
{
    for (int port = first; port <= last; port++) {
        int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        if (fd < 0)
            return -1;
        if (first > 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (try_port(fd, address, port)) {
            struct sockaddr_storage at;
            socklen_t length = sizeof at;
            getsockname(fd, (struct sockaddr *)&at, &length);
            address->port = ntohs(address->family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port);
            return fd;
        }
        int error = errno;
        close(fd);
        errno = error;
        if (error != EADDRINUSE)
            return -1;
    }
    errno = EADDRINUSE;
    return -1;
}
