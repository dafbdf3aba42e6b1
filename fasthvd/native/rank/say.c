#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say_line(const char *format, va_list rest)
{
    char line[1024] = "fasthvd: ";
    vsnprintf(line + 9, sizeof line - 10, format, rest);
    strcat(line, "\n");
    /* One write: lines of several ranks do not mix. */
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return;
}

void say(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    say_line(format, rest);
    va_end(rest);
}

void advise(const char *format, ...)
{
    const char *quiet = getenv("FASTHVD_QUIET");
    if (quiet != NULL && strcmp(quiet, "1") == 0)
        return;
    va_list rest;
    va_start(rest, format);
    say_line(format, rest);
    va_end(rest);
}
