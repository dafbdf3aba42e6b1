#define _GNU_SOURCE
#include "settings.h"

#include "../common/clock.h"
#include "../common/protocol.h"
#include "report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool number(const char *name, double otherwise, double least, double most, double *value, char why[SETTING_BYTES])
{
    const char *text = getenv(name);
    *value = otherwise;
    if (text == NULL || *text == '\0')
        return true;
    char *end;
    *value = strtod(text, &end);
    if (*end == '\0' && *value >= least && *value <= most)
        return true;
    snprintf(why, SETTING_BYTES, "%s='%s' must be a number from %g to %g", name, text, least, most);
    return false;
}

static bool ports(struct settings *settings, char why[SETTING_BYTES])
{
    const char *text = getenv("FASTHVD_PORTS");
    if (text == NULL || *text == '\0')
        return true;
    char rest;
    if (sscanf(text, "%d:%d%c", &settings->port_first, &settings->port_last, &rest) == 2 && settings->port_first > 0 &&
        settings->port_first <= settings->port_last && settings->port_last < 65536)
        return true;
    snprintf(why, SETTING_BYTES, "FASTHVD_PORTS='%s' must be two ports FIRST:LAST", text);
    return false;
}

static void text(const char *name, char *into, size_t room)
{
    const char *value = getenv(name);
    snprintf(into, room, "%s", value != NULL ? value : "");
}

static void find_program(struct settings *settings)
{
    text("FASTHVD_LANE", settings->program, sizeof settings->program);
    Dl_info here;
    if (settings->program[0] != '\0' || dladdr((void *)settings_read, &here) == 0)
        return;
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - here.dli_fname) : 1;
    snprintf(settings->program, sizeof settings->program, "%.*s/fasthvd-lane", folder, slash != NULL ? here.dli_fname : ".");
}

bool settings_read(struct settings *settings, char why[SETTING_BYTES])
{
    memset(settings, 0, sizeof *settings);
    settings->wanted = getenv("FASTHVD_AUX") != NULL;
    double aux, timeout, threshold, chunk, stats, copy, pin;
    if (!number("FASTHVD_AUX", 0, 0, LANES_MAX, &aux, why) || !number("FASTHVD_TIMEOUT", 60, 0.5, 86400, &timeout, why) ||
        !number("FASTHVD_THRESHOLD_BYTES", -1, 0, 1e18, &threshold, why) ||
        !number("FASTHVD_CHUNK_BYTES", 256 << 10, MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, &chunk, why) ||
        !number("FASTHVD_STATS", 0, 0, 1, &stats, why) || !number("FASTHVD_COPY", 0, 0, 1, &copy, why) ||
        !number("FASTHVD_PIN", 0, 0, 1, &pin, why) || !ports(settings, why))
        return false;
    settings->aux = (int)aux;
    settings->timeout_ns = (int64_t)(timeout * NS_PER_S);
    settings->threshold_bytes = (int64_t)threshold;
    settings->chunk_bytes = (uint32_t)chunk;
    settings->stats = stats != 0;
    settings->counters_as_json = report_wanted();
    settings->copy = copy != 0;
    settings->pin = pin != 0;
    text("FASTHVD_IFACE", settings->iface, sizeof settings->iface);
    if (settings->iface[0] == '\0')
        text("OMPI_MCA_btl_tcp_if_include", settings->iface, sizeof settings->iface);
    const char *excluded = getenv("OMPI_MCA_btl_tcp_if_exclude");
    if (settings->iface[0] == '\0' && excluded != NULL)
        snprintf(settings->iface, sizeof settings->iface, "^%s", excluded);
    text("FASTHVD_HOST_ID", settings->host_id, sizeof settings->host_id);
    find_program(settings);
    return true;
}

uint64_t settings_digest(const struct settings *settings)
{
    const uint64_t parts[] = {FASTHVD_PROTOCOL, (uint64_t)settings->aux, (uint64_t)settings->timeout_ns,
                              (uint64_t)settings->threshold_bytes, settings->chunk_bytes,
                              settings->stats, settings->counters_as_json};
    uint64_t digest = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof parts; i++)
        digest = (digest ^ ((const uint8_t *)parts)[i]) * 1099511628211u;
    return digest;
}
