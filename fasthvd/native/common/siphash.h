/* SipHash-2-4 (Aumasson, Bernstein 2012): the keyed hash with which ring neighbours prove the session token. */
#ifndef FASTHVD_SIPHASH_H
#define FASTHVD_SIPHASH_H
#include <stddef.h>
#include <stdint.h>

uint64_t siphash(const uint8_t key[16], const void *data, size_t bytes);
#endif
