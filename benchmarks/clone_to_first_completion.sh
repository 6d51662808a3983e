#!/usr/bin/env bash
# clone_to_first_completion.sh [REPOSITORY]: seconds from `git clone` to the end of the first
# completion, with nothing of the project on the machine before: new folder, new virtual
# environment, nothing of pip's cache, model fetched anew. Everything is removed at the end.
# REPOSITORY is an address or a folder; this clone if absent. Prints the output of `make run`, then
# one line of JSON: {"clone_to_first_completion_s": ..., "install_s": ..., "run_s": ...}
set -euo pipefail

repository=${1:-$(cd "$(dirname "$0")/.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Any free port, in case a daemon runs on the usual one.
export SWIFTSPEC_HOME="$work/home" SWIFTSPEC_SERVER__PORT=0 PIP_NO_CACHE_DIR=1
unset VIRTUAL_ENV VENV MAKEFLAGS PYTHONPATH

now() { date +%s.%N; }
started=$(now)
git clone --quiet "$repository" "$work/clone"
cd "$work/clone"
make setup
installed=$(now)
make run ONCE=1
finished=$(now)

awk -v a="$started" -v b="$installed" -v c="$finished" 'BEGIN {
  printf "{\"clone_to_first_completion_s\": %.1f, \"install_s\": %.1f, \"run_s\": %.1f}\n",
    c - a, b - a, c - b }'
