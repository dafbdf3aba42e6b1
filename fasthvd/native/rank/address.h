/* Which addresses the lanes use. */
#ifndef FASTHVD_ADDRESS_H
#define FASTHVD_ADDRESS_H
#include "../common/protocol.h"

#include <stdbool.h>

enum { ADDRESSES_MAX = 8, IFACE_BYTES = 16 };

struct address {
    uint16_t family; /* 0: none */
    uint16_t port;   /* host order */
    uint16_t prefix; /* bits of the network */
    uint16_t loopback;
    uint32_t scope;
    uint8_t ip[16];
    char iface[IFACE_BYTES];
};

/* Does `iface` name interfaces (names or networks with commas)? "" and "^LIST", all but those of the list, do not. */
bool address_named(const char *iface);
/* This host's usable addresses, in the order of `iface` if that names some. Number found. */
int addresses_of_host(const char *iface, struct address found[ADDRESSES_MAX]);
bool same_address(const struct address *a, const struct address *b);
bool same_network(const struct address *a, const struct address *b);
void address_to_socket(const struct address *address, struct sockaddr_storage *out);
/* A listening socket on `address` in the ports first..last (0: any); the port is put into `address`. -1 with errno. */
int address_listen(struct address *address, int first, int last);
#endif
