#!/usr/bin/env bash
# install.sh VENV [EXTRA]: makes the virtual environment VENV if it is not there, and installs this
# project into it, editable, with the named extra. Says which build of the kernels came out.
# PYTHON names the interpreter; without it the first one that is new enough is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
extra=${2:-}
log=$venv/install.log

fail() {
  printf 'error: %s\n       %s\n' "$1" "$2" >&2
  exit 1
}

# What pip is doing: one changing line of a terminal; elsewhere a line for each of its steps.
show_progress() {
  local line step last=
  while IFS= read -r line; do
    echo "$line" >>"$log"
    case $line in
      *Collecting* | *Downloading*) step='fetching packages' ;;
      *Building*swiftspec* | *'Building editable'*) step='building the native kernels' ;;
      *'Installing collected'*) step='installing packages' ;;
      *Building* | *Installing*) step=$last ;;
      *) continue ;;
    esac
    if [ -t 1 ]; then
      printf '\r\033[K  %.76s' "${line#"${line%%[! ]*}"}"
    elif [ "$step" != "$last" ]; then
      echo "  $step"
    fi
    last=$step
  done
  [ ! -t 1 ] || printf '\r\033[K'
}

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" >/dev/null || fail "there is no $PYTHON." "Name another one: PYTHON=..."
    new_enough "$PYTHON" ||
      fail "$PYTHON is too old; Python 3.11 or newer is needed." "Name a newer one: PYTHON=..."
    echo "$PYTHON"
    return
  fi
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer was found." \
    "Install one (apt install python3 python3-venv), or name it: make setup PYTHON=..."
}

if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python)
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments." "Run: apt install python3-venv"
  echo "Making the virtual environment $venv"
  "$python" -m venv "$venv"
fi

case $extra in
  test | dev) duration='several minutes, with torch' ;;
  *) duration='about a minute' ;;
esac
echo "Installing swiftspec-daemon${extra:+ [$extra]}: packages from PyPI, then the native kernels" \
  "($duration)"
: >"$log"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
  --editable ".${extra:+[$extra]}" 2>&1 | show_progress ||
  { tail -n 20 "$log" >&2
    fail "the installation failed; pip's last words are above, all of them in $log." \
      "If PyPI cannot be reached, see pip's documentation on proxies and index URLs."; }

build=$("$venv/bin/python" -P -m swiftspec_daemon.kernels.native.library) ||
  fail "the installed kernels cannot be loaded." "Run: make distclean setup"
echo "Native kernels: $build"
