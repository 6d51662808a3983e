#!/usr/bin/env bash
# install.sh VENV [EXTRA]: makes the virtual environment VENV if it is not there, and installs this
# project into it, editable, with the named extra. Says which build of the kernels came out.
# PYTHON names the interpreter; without it the first one that is new enough is taken.
# May be interrupted at any time (status 130, nothing goes on running): what that leaves half made
# is made anew by the next call.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
extra=${2:-}
log=$venv/install.log
said=$(mktemp)
trap 'rm -f "$said"' EXIT

fail() {
  printf 'error: %s\n       %s\n' "$1" "$2" >&2
  exit 1
}

# Runs a command in a process group of its own, so that a signal can be passed on to all that it has
# started, and waits for it. (`wait` returns at a signal, a command in the foreground does not.)
guarded() {
  local status=0
  set -m
  "$@" </dev/null &
  set +m
  wait "$!" || status=$?
  return "$status"
}

# Ends what `guarded` runs: politely, so that pip removes its temporary files, then by force.
end_job() {
  local job tenths
  job=$(jobs -p)
  [ -n "$job" ] && kill -INT -- "-$job" || return 0
  for ((tenths = 0; tenths < 50; tenths++)); do
    kill -0 -- "-$job" || return 0
    sleep 0.1
  done
  kill -KILL -- "-$job"
}

interrupted() {
  trap '' INT TERM HUP
  end_job 2>/dev/null || true
  [ ! -t 1 ] || printf '\r\033[K'
  echo 'Interrupted; run the same command again to go on.' >&2
  exit 130
}
trap interrupted INT TERM HUP

# What pip is doing: one changing line of a terminal; elsewhere a line for each of its steps.
show_progress() {
  local line step last=
  trap '' INT TERM HUP # the log has everything, also what is said at an interruption
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

# An interpreter alone says nothing: it is there before pip is. And what pip was installing when it
# was ended is taken for installed by the next pip.
is_whole() {
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || return 1
  ! grep -qs '^Installing collected packages' "$log" || grep -q '^Successfully installed' "$log"
}

run_venv() {
  "$@" 2>"$said"
}

make_environment() {
  local python clear=
  python=$(find_python)
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments." "Run: apt install python3-venv"
  # Nothing is removed from a folder that is no environment.
  [ ! -e "$venv/pyvenv.cfg" ] || clear=--clear
  echo "Making the virtual environment $venv${clear:+ anew: what is there is not whole}"
  guarded run_venv "$python" -m venv $clear "$venv" ||
    { cat "$said" >&2
      fail "the virtual environment $venv could not be made." "Python's words are above."; }
}

install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
    --editable ".${extra:+[$extra]}" 2>&1 | show_progress
}

is_whole || make_environment

case $extra in
  test | dev) duration='several minutes, with torch' ;;
  *) duration='about a minute' ;;
esac
echo "Installing swiftspec-daemon${extra:+ [$extra]}: packages from PyPI, then the native kernels" \
  "($duration)"
: >"$log"
guarded install ||
  { tail -n 20 "$log" >&2
    fail "the installation failed; pip's last words are above, all of them in $log." \
      "If PyPI cannot be reached, see pip's documentation on proxies and index URLs."; }

build=$("$venv/bin/python" -P -m swiftspec_daemon.kernels.native.library 2>>"$log") ||
  fail "the installed kernels cannot be loaded; $log says why." "Run: make distclean setup"
echo "Native kernels: $build"
