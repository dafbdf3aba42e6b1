#!/bin/sh
# A browser for the one test that opens the HTML report, where the system can install one by itself.
set -eu
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 && exit 0
# Ubuntu's package of that name only calls snap, which containers do not have.
if [ "$(id -u)" = 0 ] && grep -qs '^ID=debian' /etc/os-release; then
    echo "setup: apt-get install -y chromium" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >&2
else
    echo "setup: no Chromium here; the browser test of the HTML report will be skipped" >&2
fi
