#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
    char line[1024] = "fasthvd: ";
    va_list rest;
    va_start(rest, format);
    vsnprintf(line + 9, sizeof line - 10, format, rest);
    va_end(rest);
    strcat(line, "\n");
    /* One write: lines of several ranks do not mix. */
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return;
}
