#!/usr/bin/env bash
# An LDAP server for the tests of sign-in: Debian's slapd, installed by apt when root and missing. The
# tests run one of their own; the one of the package is not configured, so it does not start.
set -euo pipefail
PATH="$PATH:/usr/sbin"
if command -v slapd >/dev/null; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing slapd for the tests of sign-in (once)"
    export DEBIAN_FRONTEND=noninteractive
    echo "slapd slapd/no_configuration boolean true" | debconf-set-selections
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends slapd >/dev/null
    exit 0
fi
echo "The tests of sign-in need slapd. Install it (on Debian: apt install slapd), then run this again." >&2
exit 1
