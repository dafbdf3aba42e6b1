#include "siphash.h"

#include <string.h>

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
        v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
    }
}

uint64_t siphash(const uint8_t key[16], const void *data, size_t bytes)
{
    uint64_t k[2], word;
    memcpy(k, key, 16);
    uint64_t v[4] = {k[0] ^ 0x736f6d6570736575u, k[1] ^ 0x646f72616e646f6du, k[0] ^ 0x6c7967656e657261u, k[1] ^ 0x7465646279746573u};
    const uint8_t *at = data;
    size_t left = bytes;
    for (; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    }
    word = (uint64_t)bytes << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)at[i] << 8 * i;
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
