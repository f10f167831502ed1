#!/usr/bin/env bash
# Writes images/*/requirements.txt anew: what each image holds, at the newest versions that go together
# (or, with UPGRADE= in the environment, at those that are there), with the hashes of their files.
# Needs uv (pip install uv). Trainer first: a workspace has the same libraries as the jobs it starts.
set -euo pipefail
cd "$(dirname "$0")/.."

lock() {
    local image=$1
    shift
    uv pip compile --quiet ${UPGRADE---upgrade} --generate-hashes --python-platform linux \
        --python-version 3.11 --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links "$@" -o "images/$image/requirements.txt"
}

lock trainer pyproject.toml --extra jobs --extra demo
lock workspace pyproject.toml images/workspace/requirements.in --extra jobs --extra demo \
    -c images/trainer/requirements.txt
lock hub pyproject.toml images/hub/requirements.in
lock scheduler pyproject.toml images/scheduler/requirements.in --extra scheduler --extra postgresql --extra parquet
