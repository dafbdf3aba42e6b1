/* What rank 0 tells the `vsketchdlc run` that started the job: that MPI runs, and at the end the counters.
 *
 * FASTHVD_REPORT=TOKEN@PORT@ADDRESS,ADDRESS,... is set by `run`, which listens there. A report is one connection: a line
 * with the token and a word ("start" or "counters"), then one line of JSON. Without `run` the counters go into the file
 * FASTHVD_JSON. */
#ifndef FASTHVD_REPORT_H
#define FASTHVD_REPORT_H
#include <stdbool.h>

/* Are counters wanted as JSON? */
bool report_wanted(void);
/* Rank 0 of a job of `ranks` ranks has initialised MPI. */
void report_start(int ranks);
void report_counters(const char *json);
#endif
