/* Huge pages below a user's buffer that comes again and again, as gradients do. */
#ifndef FASTHVD_PAGES_H
#define FASTHVD_PAGES_H
#include <stddef.h>

/* Told of every vector that goes over the lanes; asks the kernel for huge pages at its third coming. What is in the
 * memory, and how much of it there is, stays the same. */
void pages_note(const void *at, size_t bytes);
#endif
