/* Uneven flows: an equal split is as slow as its slowest flow, so the lanes' slices follow their rates. */
#ifndef FASTHVD_WEIGHTS_H
#define FASTHVD_WEIGHTS_H
#include "lanes.h"

/* The share of each used lane as cumulative edges in 1/65536: edges[i] to edges[i + 1] for the i-th used lane. */
void weights_edges(struct lanes *lanes, uint64_t used, uint32_t edges[LANES_MAX + 1]);
/* After a good allreduce of `bytes`: measures; every few large ones all ranks take over rank 0's proposal. False: broken. */
bool weights_learn(struct lanes *lanes, uint64_t used, uint64_t bytes);
#endif
