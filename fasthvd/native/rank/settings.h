/* What `vsketchdlc run` (or the user's own environment) asks for: one FASTHVD_* variable per flag. */
#ifndef FASTHVD_SETTINGS_H
#define FASTHVD_SETTINGS_H
#include <stdbool.h>
#include <stdint.h>

enum { SETTING_BYTES = 256 };

struct settings {
    bool wanted;             /* FASTHVD_AUX is set */
    int aux;                 /* FASTHVD_AUX: lanes per host, 0 to 64 */
    int64_t timeout_ns;      /* FASTHVD_TIMEOUT: seconds */
    int64_t threshold_bytes; /* FASTHVD_THRESHOLD_BYTES: smaller calls stay on MPI; -1: measured at the start */
    uint32_t chunk_bytes;    /* FASTHVD_CHUNK_BYTES */
    int port_first, port_last; /* FASTHVD_PORTS=A:B; 0: any */
    char iface[SETTING_BYTES]; /* FASTHVD_IFACE: names or networks with commas, "^..." all but those; else what Open MPI was told */
    bool stats;                /* FASTHVD_STATS */
    bool counters_as_json;     /* FASTHVD_JSON */
    bool copy;                 /* FASTHVD_COPY: ranks copy their input for the lanes even where lanes may read it */
    bool pin;                  /* FASTHVD_PIN: lanes keep the rank's affinity */
    char host_id[SETTING_BYTES]; /* FASTHVD_HOST_ID: ranks with another one are another host (tests on one machine) */
    char program[SETTING_BYTES * 4]; /* FASTHVD_LANE: the lane program, else beside libfasthvd.so */
};

/* False: `why` says which variable is wrong. */
bool settings_read(struct settings *settings, char why[SETTING_BYTES]);
/* Equal on ranks whose settings can work together. */
uint64_t settings_digest(const struct settings *settings);
#endif
