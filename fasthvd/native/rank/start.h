/* Starting the lanes of a host and joining them to the rings. */
#ifndef FASTHVD_START_H
#define FASTHVD_START_H
#include "hosts.h"

/* Sets count, alive and the ends. False: agreed on all ranks, with the reason. */
bool start_lanes(struct lanes *lanes, struct meeting *meeting, char why[CAUSE_BYTES]);
#endif
