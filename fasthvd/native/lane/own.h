/* This host's own elements: the sum over its ranks' inputs. */
#ifndef FASTHVD_OWN_H
#define FASTHVD_OWN_H
#include "lane.h"
#include "reduce.h"

/* result = own sum. */
void lane_stage_own(struct lane *lane, uint64_t offset, size_t bytes);
/* result = result (op) each local rank's input, in the order of the local ranks. */
void lane_add_own(struct lane *lane, uint64_t offset, size_t bytes);
#endif
