#!/usr/bin/env bash
# What nodes of the tests' cluster take from the distribution: runc (with seccomp), the network's
# tools, and what builds images. Installed by apt when root and missing; without it, tests that need
# a node say why they do not run.
set -euo pipefail
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
packages=()
for pair in runc:runc ip:iproute2 umount:mount mmdebstrap:mmdebstrap buildah:buildah; do
    command -v "${pair%%:*}" >/dev/null || packages+=("${pair##*:}")
done
if [ "${#packages[@]}" = 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
echo "Installing ${packages[*]} for the nodes of the tests' cluster (once)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
