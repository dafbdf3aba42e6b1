#include "weights.h"

#include <stdlib.h>
#include <string.h>

/* Small vectors say little about rates. */
enum { LARGE_BYTES = 4 << 20, EVERY = 6, LEAST_SHARE = SHARE_WHOLE / 256 };
/* New shares must promise this much less time, twice in a row: what is noise today is noise tomorrow. */
static const double GAIN = 0.92;

static void reset(struct weights *weights, uint64_t used)
{
    memset(weights, 0, sizeof *weights);
    weights->used = used;
    int n = __builtin_popcountll(used);
    for (int i = 0; i <= n; i++)
        weights->edges[i] = (uint32_t)(SHARE_WHOLE * i / n);
}

void weights_edges(struct lanes *lanes, uint64_t used, uint32_t edges[LANES_MAX + 1])
{
    if (lanes->weights.used != used)
        reset(&lanes->weights, used);
    memcpy(edges, lanes->weights.edges, sizeof lanes->weights.edges);
}

/* Seconds a lane needs for the whole vector, from what it needed for its share. The first window only sets the start. */
static bool measure(const struct lanes *lanes, struct weights *weights, double cost[LANES_MAX])
{
    bool complete = true;
    int place = 0;
    for (int i = 0; i < LANES_MAX; i++) {
        if (!(weights->used >> i & 1))
            continue;
        uint64_t flow = lanes->board[i].flow_ns - weights->flow_ns[i];
        uint32_t share = weights->edges[place + 1] - weights->edges[place];
        complete = complete && weights->started && flow > 0 && share > 0;
        cost[place++] = share > 0 ? (double)flow / share : 0;
        weights->flow_ns[i] = lanes->board[i].flow_ns;
    }
    weights->started = true;
    return complete;
}

/* Shares in inverse proportion to the costs. Predicted time against that of the shares in use. */
static double propose(const struct weights *weights, const double cost[LANES_MAX], int n, uint32_t edges[LANES_MAX + 1])
{
    double sum = 0, now = 0, upto = 0;
    for (int i = 0; i < n; i++)
        sum += 1 / cost[i];
    edges[0] = 0;
    for (int i = 0; i < n; i++) {
        upto += 1 / cost[i] / sum;
        edges[i + 1] = i == n - 1 ? SHARE_WHOLE : (uint32_t)(upto * SHARE_WHOLE);
        if (edges[i + 1] < edges[i] + LEAST_SHARE) /* a lane keeps enough to be measured again */
            edges[i + 1] = edges[i] + LEAST_SHARE < SHARE_WHOLE ? edges[i] + LEAST_SHARE : SHARE_WHOLE;
        double took = cost[i] * (weights->edges[i + 1] - weights->edges[i]);
        now = took > now ? took : now;
    }
    return SHARE_WHOLE / sum / now;
}

/* Rank 0's opinion: its lanes' times are the rings' times, hence every host's. New shares must look better twice in a row. */
static bool decide(struct lanes *lanes, struct weights *weights, uint32_t edges[LANES_MAX + 1])
{
    double cost[LANES_MAX];
    int n = __builtin_popcountll(weights->used);
    if (!measure(lanes, weights, cost) || propose(weights, cost, n, edges) > GAIN) {
        weights->promising = false;
        return false;
    }
    weights->promising = !weights->promising;
    return !weights->promising;
}

bool weights_propose(struct lanes *lanes, uint64_t used, uint64_t bytes, uint32_t edges[LANES_MAX + 1])
{
    struct weights *weights = &lanes->weights;
    memset(edges, 0, sizeof weights->edges);
    if (lanes->transport.rank != 0 || bytes < LARGE_BYTES || lanes->hosts == 1 || __builtin_popcountll(used) < 2 ||
        ++weights->large % EVERY != 0)
        return false;
    return decide(lanes, weights, edges);
}

bool weights_take_over(struct lanes *lanes, const uint32_t edges[LANES_MAX + 1])
{
    uint32_t(*all)[LANES_MAX + 1] = calloc((size_t)lanes->transport.size, sizeof *all);
    bool good = all != NULL && lanes->transport.gather(lanes->transport.context, edges, sizeof *all, all);
    if (good)
        memcpy(lanes->weights.edges, all[0], sizeof lanes->weights.edges);
    free(all);
    return good;
}
