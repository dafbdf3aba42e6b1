/* This host's own elements: its ranks' inputs, read where they lie or where they were copied to. */
#ifndef FASTHVD_OWN_H
#define FASTHVD_OWN_H
#include "lane.h"

/* Room for chunks of `bytes`. */
void own_prepare(struct lane *lane, size_t bytes);
/* result = the sum over the local ranks. */
void own_stage(struct lane *lane, uint64_t offset, size_t bytes);
/* result = result (op) each local rank's input, in the order of the local ranks. */
void own_add(struct lane *lane, uint64_t offset, size_t bytes);
/* Where a chunk of own elements lies, at the same offset, to be sent: the rank's copy of its input, or the result area, in
 * whose place of this chunk nothing else is needed before the chunk's sum comes back round the ring. */
const struct area *own_outgoing(struct lane *lane, uint64_t offset, size_t bytes);
#endif
