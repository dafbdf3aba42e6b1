/* Monotonic time in ns. */
#ifndef FASTHVD_CLOCK_H
#define FASTHVD_CLOCK_H
#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* Milliseconds for poll() until `deadline_ns`, rounded up, at least 0. */
static inline int ms_until(int64_t deadline_ns)
{
    int64_t left = deadline_ns - now_ns();
    if (left <= 0)
        return 0;
    left = (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > 1 << 30 ? 1 << 30 : (int)left;
}
#endif
