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
/* A chunk of own elements, to be sent: valid until the next chunk is asked for. */
const char *own_outgoing(struct lane *lane, uint64_t offset, size_t bytes);
#endif
