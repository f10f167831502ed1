#!/usr/bin/env bash
# A browser for the tests that need one: Debian's chromium without a window, which takes less processor
# time than the usual one. Installed by apt when root and missing; any other chromium does, too.
set -euo pipefail
is_there() { command -v "$1" >/dev/null; }
install() { apt-get install -y -qq --no-install-recommends "$1" >/dev/null; }

if is_there chromium-headless-shell; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && is_there apt-get; then
    echo "Installing chromium for the browser tests (once)"
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq && install chromium-headless-shell; then
        exit 0
    fi
fi
for name in chromium chromium-browser google-chrome; do
    if is_there "$name"; then
        exit 0
    fi
done
echo "The browser tests need Chromium. Install it (on Debian: apt install chromium-headless-shell), then run this again." >&2
exit 1
