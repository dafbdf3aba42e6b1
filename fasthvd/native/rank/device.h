/* Is a buffer memory of a GPU? Lanes cannot read it; MPI may. */
#ifndef FASTHVD_DEVICE_H
#define FASTHVD_DEVICE_H
#include <stdbool.h>

bool on_device(const void *buffer);
#endif
