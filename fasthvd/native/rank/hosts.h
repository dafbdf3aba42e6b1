/* Which ranks share a host: those that really reach the same leader's Unix socket. */
#ifndef FASTHVD_HOSTS_H
#define FASTHVD_HOSTS_H
#include "address.h"
#include "lanes.h"

/* What every rank tells all others first. */
struct card {
    uint32_t ok, uid;
    uint64_t machine;            /* boot id, network namespace and FASTHVD_HOST_ID, hashed */
    uint64_t network;            /* boot id and network namespace alone */
    uint8_t meeting[TOKEN_BYTES]; /* name of its Unix socket */
    uint8_t token[TOKEN_BYTES];  /* rank 0's is the session token of the job's lanes */
    char host_name[NAME_BYTES];
    struct address addresses[ADDRESSES_MAX];
    char error[CAUSE_BYTES];
};

struct member {
    int socket;        /* leader: to this rank; -1 for itself */
    int input, pidfd;  /* leader: of this rank */
    int rank;
    uint32_t pid;
    uint64_t address; /* of a sample of its memory */
    uint8_t sample[TOKEN_BYTES];
};

struct meeting {
    struct card *cards; /* of all ranks */
    int *leaders;       /* of all ranks: who leads each */
    int *host_leaders;  /* by host */
    uint32_t hosts, host;
    struct member members[LOCAL_MAX]; /* of this host; sockets are known to the leader only */
    uint32_t member_count, local;
    int leader_socket;  /* not leader */
};

/* Fills the meeting. False: agreed on all ranks not to have lanes, with the same reason. */
bool hosts_meet(const struct lanes *lanes, struct meeting *meeting, char why[CAUSE_BYTES]);
/* The number of each rank's host; to be freed. */
uint32_t *hosts_of_ranks(const struct meeting *meeting, int size);
void hosts_part(struct meeting *meeting);
/* The first rank's error among `n` records of `stride` bytes that begin with `uint32_t ok` and have a text at `text`. */
bool all_ok(const void *records, int n, size_t stride, size_t text, const struct card *cards, char why[CAUSE_BYTES]);
#endif
