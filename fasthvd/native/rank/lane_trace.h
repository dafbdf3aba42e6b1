/* The lanes' phases for a trace: given to the tracer's library (libvsketch.so) where that is preloaded too. */
#ifndef FASTHVD_LANE_TRACE_H
#define FASTHVD_LANE_TRACE_H
#include "../common/protocol.h"

/* The lane's DONE; called by the leader of its host, inside the allreduce. */
void lane_trace(int lane, uint32_t pid, const struct control *done);
#endif
