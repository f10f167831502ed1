#!/usr/bin/env bash
# Writes a software bill of materials (CycloneDX) for each image: FOLDER/<image>.cdx.json.
# It names the Python packages with versions and hashes; those of the base image are the base's own.
# Needs cyclonedx-py (pip install cyclonedx-bom).
set -euo pipefail
out=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")/.."
mkdir -p "$out"
for requirements in images/*/requirements.txt; do
    image=$(basename "$(dirname "$requirements")")
    cyclonedx-py requirements --pyproject pyproject.toml --short-PURLs --output-reproducible \
        --of JSON -o "$out/$image.cdx.json" "$requirements"
done
