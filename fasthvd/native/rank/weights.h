/* Uneven flows: an equal split is as slow as its slowest flow, so the lanes' slices follow their rates. */
#ifndef FASTHVD_WEIGHTS_H
#define FASTHVD_WEIGHTS_H
#include "lanes.h"

/* The share of each used lane as cumulative edges in 1/65536: edges[i] to edges[i + 1] for the i-th used lane. */
void weights_edges(struct lanes *lanes, uint64_t used, uint32_t edges[LANES_MAX + 1]);
/* Rank 0, when its lanes have done an allreduce of `bytes`: measures every few large ones. True: `edges` would be faster,
 * and the vote tells the others that they are to be taken over. */
bool weights_propose(struct lanes *lanes, uint64_t used, uint64_t bytes, uint32_t edges[LANES_MAX + 1]);
/* All ranks, after a vote that says so: rank 0's `edges` are the shares from now on. False: broken. */
bool weights_take_over(struct lanes *lanes, const uint32_t edges[LANES_MAX + 1]);
#endif
