/* One allreduce over the lanes, as a rank sees it: copy in, post, sleep, vote, copy out. */
#define _GNU_SOURCE
#include "../common/clock.h"
#include "../common/slices.h"
#include "end.h"
#include "lane_trace.h"
#include "lanes.h"
#include "pages.h"
#include "say.h"
#include "weights.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Of the second word of a ballot; a vote is the AND of all ranks'. */
enum { VOTE_NO_MISMATCH = 1, VOTE_SAME_SHARES = 2 };

/* Why a rank's lanes failed, told to all. */
struct cause_card {
    uint32_t cause, lane;
    char host_name[NAME_BYTES];
    char text[CAUSE_BYTES];
};

/* Of one --timeout T: a silent flow fails after 3/8 T (start.c), a lane that does not run after 1/2 T, and a vote that does
 * not end after another 9/16 T: all together below T. */
static void fail_end(struct lane_end *end, enum cause cause, const char *text)
{
    end->failed = true;
    end->cause = cause;
    snprintf(end->text, CAUSE_BYTES, "%s", text);
    end_close(end, true);
}

static uint64_t choose_lanes(const struct lanes *lanes)
{
    uint64_t used = 0;
    int wanted = lanes_usable(lanes);
    for (int i = 0; i < LANES_MAX && wanted > 0; i++)
        if (lanes->alive >> i & 1) {
            used |= 1ull << i;
            wanted--;
        }
    return used;
}

static void post(struct lanes *lanes, uint64_t used, struct control *job)
{
    uint32_t edges[LANES_MAX + 1];
    int place = 0;
    weights_edges(lanes, used, edges);
    int64_t now = now_ns();
    for (int i = 0; i < LANES_MAX; i++) {
        if (!(used >> i & 1))
            continue;
        struct lane_end *end = &lanes->ends[i];
        job->job.share_lo = edges[place];
        job->job.share_hi = edges[place + 1];
        place++;
        end->done = end->failed = false;
        end->cause = CAUSE_NONE;
        end->seen_ns = now;
        end->seen_beat = lanes->board[i].beat;
        end->seen_bytes = 0;
        /* A lane that has died has left its last words, or the end of its stream: both are read below. */
        if (end->control >= 0)
            ipc_send(end->control, job, sizeof *job, NULL, 0);
    }
}

static void hear_lane(struct lanes *lanes, int i)
{
    struct lane_end *end = &lanes->ends[i];
    struct control message;
    ssize_t got = recv(end->control, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && errno == ECONNRESET) /* it died with our job unread; its last words may still be there */
        got = recv(end->control, &message, sizeof message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        fail_end(end, CAUSE_DIED, "the lane process died (was it killed?)");
    else if (message.kind == CONTROL_FAILED)
        fail_end(end, message.cause, message.text);
    else if (message.kind == CONTROL_DONE && message.job.sequence == lanes->sequence) {
        end->done = true;
        if (lanes->leader)
            lane_trace(i, end->pid, &message);
    } else if (message.kind == CONTROL_WARN && lanes->leader)
        say("host %s, lane %d: %s", lanes->host_name, i, message.text);
}

/* A lane that is stopped, or hangs, shows by its board; one that waits for a late host still beats. */
static void check_beat(struct lanes *lanes, int i, int64_t now)
{
    struct lane_end *end = &lanes->ends[i];
    const struct lane_board *board = &lanes->board[i];
    uint64_t beat = __atomic_load_n(&board->beat, __ATOMIC_RELAXED), bytes = board->bytes_sent + board->bytes_received;
    if (beat != end->seen_beat || bytes != end->seen_bytes) {
        end->seen_beat = beat;
        end->seen_bytes = bytes;
        end->seen_ns = now;
    } else if (now - end->seen_ns > lanes->settings.timeout_ns / 2) {
        fail_end(end, CAUSE_STOPPED, "the lane process does not run (stopped, or no core left for it)");
    }
}

/* Sleeps until every posted lane has answered or is given up. Bit mask of the lanes that are done. */
static uint64_t wait_for_lanes(struct lanes *lanes, uint64_t used)
{
    int tick_ms = (int)(lanes->settings.timeout_ns / 16 / NS_PER_MS);
    uint64_t done = 0;
    for (;;) {
        struct pollfd waiting[LANES_MAX];
        int numbers[LANES_MAX];
        nfds_t n = 0;
        for (int i = 0; i < LANES_MAX; i++) {
            struct lane_end *end = &lanes->ends[i];
            if (!(used >> i & 1) || end->failed)
                continue;
            if (end->done)
                done |= 1ull << i;
            else if (end->control < 0)
                fail_end(end, CAUSE_SYSTEM, "this rank has let go of the lane");
            else {
                waiting[n] = (struct pollfd){.fd = end->control, .events = POLLIN};
                numbers[n++] = i;
            }
        }
        if (n == 0)
            return done;
        int ready = poll(waiting, n, tick_ms < 1000 ? tick_ms + 1 : 1000);
        int64_t now = ready == 0 ? now_ns() : 0;
        for (nfds_t i = 0; i < n; i++) {
            if (ready > 0 && waiting[i].revents != 0)
                hear_lane(lanes, numbers[i]);
            else if (ready == 0)
                check_beat(lanes, numbers[i], now);
        }
    }
}

/* This rank cannot take part: its lanes end, so the others' lanes fail too and all come to the vote. */
static void refuse(struct lanes *lanes, uint64_t used, uint64_t bytes)
{
    char text[CAUSE_BYTES];
    snprintf(text, sizeof text, "no memory for %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    for (int i = 0; i < LANES_MAX; i++)
        if (used >> i & 1)
            fail_end(&lanes->ends[i], CAUSE_SYSTEM, text);
}

/* The cause that tells most among this rank's lanes; -1 when none failed. */
static int worst_end(const struct lanes *lanes, uint64_t used)
{
    int worst = -1;
    for (int i = 0; i < LANES_MAX; i++)
        if (used >> i & 1 && lanes->ends[i].failed && (worst < 0 || lanes->ends[i].cause > lanes->ends[worst].cause))
            worst = i;
    return worst;
}

/* The ranks cannot agree any more: what this one has seen itself is all that it can say. */
static void tell_what_is_known(struct lanes *lanes, uint64_t used, const char *silent)
{
    int worst = worst_end(lanes, used);
    if (worst < 0)
        snprintf(lanes->reason, CAUSE_BYTES, "%s", silent);
    else
        snprintf(lanes->reason, CAUSE_BYTES, "%.100s; lane %d: %.130s", silent, worst, lanes->ends[worst].text);
}

/* All ranks learn the most telling cause; rank 0 says it once. */
static bool share_cause(struct lanes *lanes, uint64_t used, char reason[CAUSE_BYTES])
{
    struct cause_card mine = {.cause = CAUSE_NONE};
    snprintf(mine.host_name, NAME_BYTES, "%s", lanes->host_name);
    int worst_lane = worst_end(lanes, used);
    if (worst_lane >= 0) {
        mine.cause = lanes->ends[worst_lane].cause;
        mine.lane = (uint32_t)worst_lane;
        memcpy(mine.text, lanes->ends[worst_lane].text, CAUSE_BYTES);
    }
    struct cause_card *all = calloc((size_t)lanes->transport.size, sizeof *all);
    if (all == NULL || !lanes->transport.gather(lanes->transport.context, &mine, sizeof mine, all)) {
        free(all);
        return false;
    }
    const struct cause_card *worst = &all[0];
    for (int i = 1; i < lanes->transport.size; i++)
        if (all[i].cause > worst->cause)
            worst = &all[i];
    snprintf(reason, CAUSE_BYTES, "host %.40s, lane %u: %.190s", worst->host_name, worst->lane, worst->text);
    free(all);
    return true;
}

/* After a failed vote: the lanes that failed anywhere are no more. */
static enum outcome go_on_with_fewer(struct lanes *lanes, uint64_t used, uint64_t good, bool mismatch)
{
    char reason[CAUSE_BYTES];
    if (!share_cause(lanes, used, reason))
        return OUTCOME_BROKEN;
    lanes->alive &= ~(used & ~good);
    for (int i = 0; i < LANES_MAX; i++)
        if (used & ~good & 1ull << i)
            end_close(&lanes->ends[i], true);
    memcpy(lanes->reason, reason, CAUSE_BYTES);
    if (mismatch)
        return OUTCOME_MISMATCH;
    int left = __builtin_popcountll(lanes->alive);
    char whose[64] = ""; /* nothing where there is but one group, as in most jobs */
    if (lanes->number != 0)
        snprintf(whose, sizeof whose, " for a communicator of %d ranks", lanes->transport.size);
    if (lanes->transport.rank == 0 && left > 0)
        say("%s; going on with %d of %d lanes%s", reason, left, lanes->started, whose);
    else if (lanes->transport.rank == 0)
        say("%s; going on without lanes%s", reason, whose);
    return OUTCOME_REDO;
}

static bool mismatch_seen(const struct lanes *lanes, uint64_t used)
{
    for (int i = 0; i < LANES_MAX; i++)
        if (used >> i & 1 && lanes->ends[i].failed && lanes->ends[i].cause == CAUSE_MISMATCH)
            return true;
    return false;
}

#ifdef FASTHVD_BARE /* benchmarks only: what the vote and the copy from the result area cost is what this leaves out */
__attribute__((visibility("default"))) int fasthvd_bare;
#endif

enum outcome lanes_allreduce(struct lanes *lanes, const void *send, void *recv, uint64_t count, enum element_type type, enum operation op)
{
    uint64_t bytes = count * element_bytes(type), used = choose_lanes(lanes), good = 0;
    struct control job = {
        .kind = CONTROL_JOB,
        .area_bytes = bytes,
        .job = {.comm = lanes->number, .type = type, .op = op, .sequence = ++lanes->sequence, .count = count,
                .chunk_bytes = lanes->settings.chunk_bytes},
    };
    bool read = lanes->read_in_place;
    pages_note(send, bytes);
    if (recv != send)
        pages_note(recv, bytes);
    if ((!read && !area_grow(&lanes->input, bytes)) || (lanes->leader && !area_grow(&lanes->result, bytes))) {
        refuse(lanes, used, bytes);
    } else {
        if (read)
            job.address = (uintptr_t)send;
        else if (bytes > 0)
            memcpy(lanes->input.at, send, bytes);
        post(lanes, used, &job);
        good = wait_for_lanes(lanes, used);
        if (good == used && !area_map(&lanes->result, bytes)) {
            refuse(lanes, used, bytes);
            good = 0;
        }
    }
#ifdef FASTHVD_BARE
    if (fasthvd_bare)
        return OUTCOME_DONE;
#endif
    bool mismatch = mismatch_seen(lanes, used);
    uint32_t shares[LANES_MAX + 1] = {0};
    bool new_shares = good == used && weights_propose(lanes, used, bytes, shares);
    uint64_t ballot[2] = {good, (mismatch ? 0 : VOTE_NO_MISMATCH) | (new_shares ? 0 : VOTE_SAME_SHARES)};
    char silent[CAUSE_BYTES];
    if (!lanes->transport.vote(lanes->transport.context, ballot, lanes->settings.timeout_ns / 16 * 9, silent)) {
        tell_what_is_known(lanes, used, silent);
        return OUTCOME_BROKEN;
    }
    if (ballot[0] != used)
        return go_on_with_fewer(lanes, used, ballot[0], !(ballot[1] & VOTE_NO_MISMATCH));
    if (bytes > 0) /* nothing need be mapped for an empty vector */
        memcpy(recv, lanes->result.at, bytes);
    bool kept = ballot[1] & VOTE_SAME_SHARES || weights_take_over(lanes, shares);
    return kept ? OUTCOME_DONE : OUTCOME_BROKEN;
}
