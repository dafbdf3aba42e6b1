/* One line on stderr, begun with "fasthvd:". */
#ifndef FASTHVD_SAY_H
#define FASTHVD_SAY_H
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
