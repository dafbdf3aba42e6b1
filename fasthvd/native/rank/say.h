/* One line on stderr, begun with "fasthvd:". */
#ifndef FASTHVD_SAY_H
#define FASTHVD_SAY_H
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for advice, which FASTHVD_QUIET=1 (`run --quiet`) keeps back. */
void advise(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
