#!/usr/bin/env bash
# install.sh VENV [EXTRA]: makes the virtual environment VENV if it is not there, and installs this
# project into it, editable, with the named extra. Says which build of the kernels came out.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
extra=${2:-}
python=${PYTHON:-python3}
log=$venv/install.log

fail() {
  printf 'error: %s\n       %s\n' "$1" "$2" >&2
  exit 1
}

# One line of the terminal that says what pip is doing; nothing where the output is a file.
show_progress() {
  local line
  while IFS= read -r line; do
    echo "$line" >>"$log"
    case $line in
      "  Downloading"* | *Collecting* | *Building* | Installing*)
        [ ! -t 1 ] || printf '\r\033[K  %.76s' "${line#"${line%%[! ]*}"}" ;;
    esac
  done
  [ ! -t 1 ] || printf '\r\033[K'
}

if [ ! -x "$venv/bin/python" ]; then
  command -v "$python" >/dev/null ||
    fail "there is no $python." "Install Python 3.11 or newer (apt install python3 python3-venv)."
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; Python 3.11 or newer is needed." \
      "Name a newer one, for example: make run PYTHON=python3.12"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments." "Run: apt install python3-venv"
  echo "Making the virtual environment $venv"
  "$python" -m venv "$venv"
fi

echo "Installing swiftspec-daemon${extra:+ [$extra]}: packages from PyPI, then the native kernels"
: >"$log"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
  --editable ".${extra:+[$extra]}" 2>&1 | show_progress ||
  { tail -n 20 "$log" >&2
    fail "the installation failed; pip's last words are above, all of them in $log." \
      "If PyPI cannot be reached, see pip's documentation on proxies and index URLs."; }

build=$("$venv/bin/python" -P -m swiftspec_daemon.kernels.native.library) ||
  fail "the installed kernels cannot be loaded." "Run: make distclean setup"
echo "Native kernels: $build"
