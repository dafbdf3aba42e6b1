/* A rank's end of one lane. */
#ifndef FASTHVD_END_H
#define FASTHVD_END_H
#include "lanes.h"

void end_close(struct lane_end *end, bool kill_it);
#endif
