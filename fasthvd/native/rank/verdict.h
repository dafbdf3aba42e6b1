/* Within 20 steps: do the gradients come by here at all, and if not, which setting would help? */
#ifndef FASTHVD_VERDICT_H
#define FASTHVD_VERDICT_H
#include <stdbool.h>
#include <stdint.h>

/* The answer of one of Horovod's control calls, `words` 64-bit words that were combined by AND. True once: a tensor has
 * been reduced in 20 steps now. Counting costs a few ns and ends then. */
bool verdict_steps_done(const uint64_t *words, int64_t count);
/* Says once which bytes the lanes carried, which passed and why, and what would help. `always`: also when all is well. */
void verdict_say(int64_t threshold_bytes, bool always);
/* At the end of the job: only what has not been said, and only bad news. */
void verdict_at_end(int64_t threshold_bytes);
#endif
