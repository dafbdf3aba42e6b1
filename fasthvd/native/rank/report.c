#define _GNU_SOURCE
#include "report.h"

#include "../common/clock.h"
#include "say.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PLACES_MAX = 16, TEXT_BYTES = 1024, REACH_MS = 2000 };

static const char *setting(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? text : NULL;
}

bool report_wanted(void) { return setting("FASTHVD_JSON") != NULL; }

static int start_connecting(const char *address, int port)
{
    struct sockaddr_storage to;
    memset(&to, 0, sizeof to);
    struct sockaddr_in *four = (struct sockaddr_in *)&to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&to;
    socklen_t length = sizeof *four;
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
    } else if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        length = sizeof *six;
    } else {
        return -1;
    }
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, length) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The first of several connections under way that stands; the others are closed. -1: none in time. */
static int first_that_stands(struct pollfd *under_way, nfds_t n)
{
    int64_t deadline = now_ns() + REACH_MS * NS_PER_MS;
    int chosen = -1;
    for (nfds_t open = n; chosen < 0 && open > 0 && now_ns() < deadline;) {
        if (poll(under_way, n, ms_until(deadline)) <= 0)
            continue;
        for (nfds_t i = 0; i < n && chosen < 0; i++) {
            if (under_way[i].fd < 0 || under_way[i].revents == 0)
                continue;
            int error = 0;
            socklen_t length = sizeof error;
            getsockopt(under_way[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
            if (error == 0) {
                chosen = under_way[i].fd;
            } else {
                close(under_way[i].fd);
                open--;
            }
            under_way[i].fd = -1;
        }
    }
    for (nfds_t i = 0; i < n; i++)
        if (under_way[i].fd >= 0)
            close(under_way[i].fd);
    return chosen;
}

static bool send_whole(int fd, const char *text, int64_t deadline)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t sent = send(fd, text, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            text += sent;
            left -= (size_t)sent;
            continue;
        }
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        if ((errno != EAGAIN && errno != EINTR) || poll(&room, 1, ms_until(deadline)) <= 0)
            return false;
    }
    return true;
}

/* False: `run` cannot be reached from this host. True as well where nobody waits for a report. */
static bool report(const char *what, const char *json)
{
    const char *where = setting("FASTHVD_REPORT");
    char places[TEXT_BYTES], token[64], head[128];
    int port = 0, addresses_at = 0;
    if (where == NULL || sscanf(where, "%63[0-9a-f]@%d@%n", token, &port, &addresses_at) != 2 || addresses_at == 0)
        return true;
    snprintf(places, sizeof places, "%s", where + addresses_at);
    struct pollfd under_way[PLACES_MAX];
    nfds_t n = 0;
    char *rest;
    for (char *address = strtok_r(places, ",", &rest); address != NULL && n < PLACES_MAX; address = strtok_r(NULL, ",", &rest)) {
        int fd = start_connecting(address, port);
        if (fd >= 0)
            under_way[n++] = (struct pollfd){.fd = fd, .events = POLLOUT};
    }
    int fd = first_that_stands(under_way, n);
    if (fd < 0)
        return false;
    snprintf(head, sizeof head, "%s %s\n", token, what);
    int64_t deadline = now_ns() + REACH_MS * NS_PER_MS;
    bool good = send_whole(fd, head, deadline) && send_whole(fd, json, deadline) && send_whole(fd, "\n", deadline);
    shutdown(fd, SHUT_WR);
    struct pollfd heard = {.fd = fd, .events = POLLIN};
    good = good && poll(&heard, 1, REACH_MS) > 0; /* `run` closes when it has all: then nothing is lost on the way */
    close(fd);
    return good;
}

void report_start(int ranks)
{
    char json[64];
    snprintf(json, sizeof json, "{\"ranks\":%d}", ranks);
    report("start", json); /* unreachable: said at the end, and only if somebody wants the counters */
}

static bool write_file(const char *path, const char *json)
{
    if (strcmp(path, "-") == 0)
        return printf("%s\n", json) > 0 && fflush(stdout) == 0;
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    bool good = fputs(json, file) >= 0 && fputc('\n', file) != EOF;
    return fclose(file) == 0 && good;
}

void report_counters(const char *json)
{
    const char *path = setting("FASTHVD_JSON");
    if (setting("FASTHVD_REPORT") != NULL) {
        if (!report("counters", json))
            say("the counters cannot be brought to 'vsketchdlc run': none of its addresses answers here (FASTHVD_REPORT); use --stats");
    } else if (path != NULL && !write_file(path, json)) {
        say("the counters cannot be written to FASTHVD_JSON=%s: %s", path, strerror(errno));
    }
}
