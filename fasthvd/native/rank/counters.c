#define _GNU_SOURCE
#include "counters.h"

#include "../common/clock.h"
#include "report.h"
#include "say.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lanes that this rank has led, all its groups together. */
struct led_lanes {
    char host_name[NAME_BYTES]; /* "": none */
    uint64_t alive;             /* bit i: a lane i worked to the end */
    struct lane_board board[LANES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tally counters;
static struct led_lanes led;

/* What --stats calls a reason, and what --json calls it. */
static const struct {
    const char *words, *key;
} reasons[PASSED_REASONS] = {
    [PASSED_CONTROL] = {"Horovod's control messages", "control"},
    [PASSED_SMALL] = {"below the threshold", "below_threshold"},
    [PASSED_TYPE] = {"type", "type"},
    [PASSED_OPERATION] = {"operation", "operation"},
    [PASSED_COMMUNICATOR] = {"communicator", "communicator"},
    [PASSED_NEW_COMMUNICATOR] = {"first calls of a communicator", "new_communicator"},
    [PASSED_NO_GROUP] = {"no lane group free", "no_group"},
    [PASSED_DEVICE] = {"device memory", "device_memory"},
    [PASSED_NO_LANES] = {"no lanes", "no_lanes"},
    [PASSED_REDONE] = {"failed, redone", "redone"},
};

void counters_carried(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    counters.carried_calls++;
    counters.carried_bytes += bytes;
    pthread_mutex_unlock(&lock);
}

void counters_passed(enum passed why, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    counters.calls[why]++;
    counters.bytes[why] += bytes;
    if (why == PASSED_SMALL && bytes > counters.largest)
        counters.largest = bytes;
    pthread_mutex_unlock(&lock);
}

void counters_group(void)
{
    pthread_mutex_lock(&lock);
    counters.groups++;
    pthread_mutex_unlock(&lock);
}

void counters_tally(struct tally *tally)
{
    pthread_mutex_lock(&lock);
    *tally = counters;
    pthread_mutex_unlock(&lock);
}

static void add_board(struct lane_board *sum, const struct lane_board *part)
{
    sum->jobs += part->jobs;
    sum->bytes_sent += part->bytes_sent;
    sum->bytes_received += part->bytes_received;
    sum->busy_ns += part->busy_ns;
    sum->wait_ns += part->wait_ns;
    sum->retransmits += part->retransmits;
    sum->flow_ns += part->flow_ns;
}

void counters_keep_lanes(const struct lanes *lanes)
{
    if (!lanes->leader)
        return;
    pthread_mutex_lock(&lock);
    memcpy(led.host_name, lanes->host_name, NAME_BYTES);
    led.alive |= lanes->alive;
    for (int i = 0; i < LANES_MAX; i++)
        add_board(&led.board[i], &lanes->board[i]);
    pthread_mutex_unlock(&lock);
}

static double rate_bits_per_s(const struct lane_board *lane)
{
    double flow_s = (double)lane->flow_ns / NS_PER_S;
    return flow_s > 0 ? (double)lane->bytes_sent * 8 / flow_s : 0.0;
}

static void print_calls(void)
{
    say("stats: rank 0 sent %llu allreduces, %.3f MB, over the lanes", (unsigned long long)counters.carried_calls, counters.carried_bytes / 1e6);
    if (counters.groups > 0)
        say("stats: rank 0 had lanes for %llu communicators beside the first one's", (unsigned long long)counters.groups);
    for (int i = 0; i < PASSED_REASONS; i++)
        if (counters.calls[i] > 0)
            say("stats: rank 0 passed %llu allreduces, %.3f MB, to MPI: %s", (unsigned long long)counters.calls[i], counters.bytes[i] / 1e6,
                reasons[i].words);
}

static void print_host(const struct led_lanes *host)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const struct lane_board *lane = &host->board[i];
        if (lane->jobs == 0)
            continue;
        say("stats: %-16s lane %2u %8llu jobs %12.3f MB sent %12.3f MB received %9.3f s busy %9.3f s waiting %8.3f Gbit/s %6llu retransmits",
            host->host_name, i, (unsigned long long)lane->jobs, lane->bytes_sent / 1e6, lane->bytes_received / 1e6,
            (double)lane->busy_ns / NS_PER_S, (double)lane->wait_ns / NS_PER_S, rate_bits_per_s(lane) / 1e9,
            (unsigned long long)lane->retransmits);
    }
}

/* Host names are the only text from outside: whatever JSON would trip over becomes '?'. */
static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++)
        fputc((unsigned char)*text < ' ' || *text == '"' || *text == '\\' || (unsigned char)*text > 126 ? '?' : *text, out);
    fputc('"', out);
}

static void put_host(FILE *out, const struct led_lanes *host, const char **comma)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const struct lane_board *lane = &host->board[i];
        if (lane->jobs == 0 && !(host->alive >> i & 1))
            continue;
        fprintf(out, "%s{\"host\":", *comma);
        put_text(out, host->host_name);
        fprintf(out,
                ",\"lane\":%u,\"alive\":%s,\"jobs\":%llu,\"sent_bytes\":%llu,\"received_bytes\":%llu,\"busy_s\":%.9f,\"waiting_s\":%.9f,"
                "\"rate_bits_per_s\":%.0f,\"retransmits\":%llu}",
                i, host->alive >> i & 1 ? "true" : "false", (unsigned long long)lane->jobs, (unsigned long long)lane->bytes_sent,
                (unsigned long long)lane->bytes_received, (double)lane->busy_ns / NS_PER_S, (double)lane->wait_ns / NS_PER_S,
                rate_bits_per_s(lane), (unsigned long long)lane->retransmits);
        *comma = ",";
    }
}

static void put_job(FILE *out, int ranks, int64_t threshold_bytes, const struct led_lanes *all)
{
    const char *comma = "";
    fprintf(out, "{\"format_version\":1,\"ranks\":%d,\"threshold_bytes\":", ranks);
    if (threshold_bytes >= 0)
        fprintf(out, "%lld", (long long)threshold_bytes);
    else
        fputs("null", out);
    fprintf(out, ",\"carried\":{\"calls\":%llu,\"bytes\":%llu},\"groups\":%llu,\"passed\":{", (unsigned long long)counters.carried_calls,
            (unsigned long long)counters.carried_bytes, (unsigned long long)counters.groups);
    for (int i = 0; i < PASSED_REASONS; i++)
        fprintf(out, "%s\"%s\":{\"calls\":%llu,\"bytes\":%llu}", i > 0 ? "," : "", reasons[i].key, (unsigned long long)counters.calls[i],
                (unsigned long long)counters.bytes[i]);
    fputs("},\"lanes\":[", out);
    for (int i = 0; i < ranks; i++)
        if (all[i].host_name[0] != '\0')
            put_host(out, &all[i], &comma);
    fputs("]}", out);
}

static void report_job(int ranks, int64_t threshold_bytes, const struct led_lanes *all)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return;
    put_job(out, ranks, threshold_bytes, all);
    if (fclose(out) == 0)
        report_counters(text);
    free(text);
}

/* Several ranks of a host may have led lanes of different groups: one row for each lane number of a host. */
static void join_hosts(struct led_lanes *all, int size)
{
    for (int i = 0; i < size; i++)
        for (int j = i + 1; j < size && all[i].host_name[0] != '\0'; j++) {
            if (strcmp(all[j].host_name, all[i].host_name) != 0)
                continue;
            for (int lane = 0; lane < LANES_MAX; lane++)
                add_board(&all[i].board[lane], &all[j].board[lane]);
            all[i].alive |= all[j].alive;
            all[j].host_name[0] = '\0';
        }
}

void counters_finish(struct mpi_group *group, int64_t threshold_bytes, bool as_lines)
{
    struct led_lanes *all = calloc((size_t)group->size, sizeof *all);
    struct transport transport = messages_transport(group);
    if (all != NULL && transport.gather(group, &led, sizeof led, all) && group->rank == 0) {
        join_hosts(all, group->size);
        for (int i = 0; as_lines && i < group->size; i++)
            if (all[i].host_name[0] != '\0')
                print_host(&all[i]);
        if (as_lines)
            print_calls();
        if (report_wanted())
            report_job(group->size, threshold_bytes, all);
    }
    free(all);
}
