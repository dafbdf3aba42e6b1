/* Every cycle Horovod's ranks combine a bit vector by MPI_Allreduce(BAND): three bits of state, then a bit for each tensor
 * that is ready on all ranks (response_cache.cc, CacheCoordinator::sync). So the bit that came most often counts the
 * steps, whatever carries the gradients themselves and whatever the framework. */
#define _GNU_SOURCE
#include "verdict.h"

#include "counters.h"
#include "say.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STEPS = 20, STATE_BITS = 3, WORDS_MAX = 32, TEXT_BYTES = 400 };

static struct {
    uint8_t seen[WORDS_MAX * 64];
    bool counted, said;
} verdict;

bool verdict_steps_done(const uint64_t *words, int64_t count)
{
    if (verdict.counted)
        return false;
    const char *timeline = getenv("HOROVOD_TIMELINE"); /* then a second half follows, for the timeline's own use */
    if (timeline != NULL && *timeline != '\0')
        count /= 2;
    for (int i = 0; i < count && i < WORDS_MAX; i++) {
        uint64_t bits = words[i] & (i == 0 ? ~((1ull << STATE_BITS) - 1) : ~0ull);
        for (; bits != 0; bits &= bits - 1)
            /* The first step comes before its tensors have bits. */
            if (++verdict.seen[i * 64 + __builtin_ctzll(bits)] == STEPS - 1)
                verdict.counted = true;
    }
    return verdict.counted;
}

static int names_nccl(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    (void)found;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "libnccl") != NULL;
}

static bool chosen(const char *variable, const char *value)
{
    const char *text = getenv(variable);
    return text != NULL && strcasecmp(text, value) == 0;
}

/* Nothing but control messages has come: who carries the gradients, and what would bring them here? */
static const char *help_when_nothing_came(void)
{
    static char text[TEXT_BYTES];
    const char *cpu = getenv("HOROVOD_CPU_OPERATIONS");
    if (chosen("HOROVOD_CPU_OPERATIONS", "gloo") || chosen("HOROVOD_CONTROLLER", "gloo"))
        return "Gloo carries them: take HOROVOD_CPU_OPERATIONS=gloo and HOROVOD_CONTROLLER=gloo out of the environment, and "
               "Horovod hands them to MPI";
    if (dl_iterate_phdr(names_nccl, NULL) != 0 || chosen("HOROVOD_GPU_OPERATIONS", "NCCL") || chosen("HOROVOD_GPU_ALLREDUCE", "NCCL"))
        return chosen("HOROVOD_HIERARCHICAL_ALLREDUCE", "1")
                   ? "NCCL carries them although HOROVOD_HIERARCHICAL_ALLREDUCE=1 is set: it needs several hosts with the same number of GPUs"
                   : "NCCL carries them: HOROVOD_HIERARCHICAL_ALLREDUCE=1 sends the part between hosts through MPI";
    if (cpu != NULL && *cpu != '\0' && !chosen("HOROVOD_CPU_OPERATIONS", "MPI")) {
        snprintf(text, sizeof text, "HOROVOD_CPU_OPERATIONS=%.40s carries them: HOROVOD_CPU_OPERATIONS=MPI hands them to MPI", cpu);
        return text;
    }
    return "if NCCL carries them, HOROVOD_HIERARCHICAL_ALLREDUCE=1 sends the part between hosts through MPI; if Gloo does, "
           "HOROVOD_CPU_OPERATIONS=MPI helps";
}

static const char *help_for(enum passed why, int64_t threshold_bytes, uint64_t largest)
{
    static char text[TEXT_BYTES];
    switch (why) {
    case PASSED_SMALL:
        snprintf(text, sizeof text,
                 "smaller than %lld bytes, where lanes begin to pay (largest: %llu): larger buckets help (HOROVOD_CYCLE_TIME, "
                 "HOROVOD_FUSION_THRESHOLD up), or '--threshold'",
                 (long long)threshold_bytes, (unsigned long long)largest);
        return text;
    case PASSED_TYPE:
        return "of a type that lanes cannot add: float16, float32, float64 and integers can be";
    case PASSED_OPERATION:
        return "with an operation other than SUM, MIN, MAX, PROD";
    case PASSED_COMMUNICATOR:
        return "on communicators that have no lanes (process sets)";
    case PASSED_DEVICE:
        return "in GPU memory: with NCCL and HOROVOD_HIERARCHICAL_ALLREDUCE=1 the part between hosts is in host memory";
    default:
        return "while there were no lanes (see above)";
    }
}

void verdict_say(int64_t threshold_bytes, bool always)
{
    struct tally tally;
    counters_tally(&tally);
    uint64_t passed = 0;
    enum passed most = PASSED_SMALL;
    for (int i = 0; i < PASSED_REASONS; i++) {
        if (i == PASSED_CONTROL)
            continue;
        passed += tally.bytes[i];
        if (tally.bytes[i] > tally.bytes[most])
            most = (enum passed)i;
    }
    if (passed == 0 && tally.calls[PASSED_TYPE] > 0)
        most = PASSED_TYPE; /* how many bytes those have is not known here */
    if (verdict.said)
        return;
    if (tally.carried_bytes == 0 && passed == 0 && most != PASSED_TYPE) {
        verdict.said = true;
        advise("no gradient has come through MPI_Allreduce yet, so the lanes carry nothing: %s", help_when_nothing_came());
    } else if (tally.carried_bytes < passed || (tally.carried_bytes == 0 && most == PASSED_TYPE)) {
        verdict.said = true;
        advise("the lanes carried %.1f MB in %llu allreduces; %llu passed to MPI, most of them %s", tally.carried_bytes / 1e6,
               (unsigned long long)tally.carried_calls, (unsigned long long)tally.calls[most], help_for(most, threshold_bytes, tally.largest));
    } else if (always) {
        verdict.said = true;
        advise("the lanes carried %.1f MB in %llu allreduces, %.1f MB passed to MPI", tally.carried_bytes / 1e6,
               (unsigned long long)tally.carried_calls, passed / 1e6);
    }
}

void verdict_at_end(int64_t threshold_bytes)
{
    struct tally tally;
    counters_tally(&tally);
    uint64_t calls = 0;
    for (int i = 0; i < PASSED_REASONS; i++)
        calls += tally.calls[i];
    if (calls > 0) /* a program that calls no allreduce at all is no training job */
        verdict_say(threshold_bytes, false);
}
