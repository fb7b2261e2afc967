# Shared by ./demo, ./test and .ci/run: finds a Python, makes virtual environments, installs the project plainly.
# Sourced with `set -euo pipefail` on and $root naming the repository.

# What a build needs, and nothing that an earlier build left behind (a stale build/ would ship deleted modules).
SOURCES=(pyproject.toml MANIFEST.in README.md LICENSE CHANGELOG.md CONTRIBUTING.md constraints.txt demo
  documentation pipeline test
  .ci api log actors supervision simulations tests docs benchmarks)
# What decides whether an installed copy is still the one in the folder.
INSTALLED=(pyproject.toml README.md LICENSE constraints.txt .ci/environment.sh api log actors supervision simulations)

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Prints the first Python from 3.11 to 3.13 that can make virtual environments.
find_python() {
  local candidate old=""
  for candidate in ${CALLBOARD_PYTHON:+"$CALLBOARD_PYTHON"} python3.11 python3.12 python3.13 python3; do
    "$candidate" -c '' >/dev/null 2>&1 || continue
    if ! "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
      old="$candidate is $("$candidate" -V 2>&1)"
      continue
    fi
    if ! "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
      old="$candidate cannot make virtual environments (on Debian: apt install python3-venv)"
      continue
    fi
    printf '%s\n' "$candidate"
    return
  done
  die "Python 3.11, 3.12 or 3.13 is needed${old:+; $old}. Install one, or name it in CALLBOARD_PYTHON."
}

# find_version VERSION: prints a Python of this version that can make virtual environments, from PATH or of pyenv.
find_version() {
  local candidate candidates=("python$1")
  if command -v pyenv >/dev/null; then candidates+=("$(pyenv root)/versions/$1".*/bin/python); fi
  for candidate in "${candidates[@]}"; do
    "$candidate" -c "import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1 ||
      continue
    printf '%s\n' "$candidate"
    return
  done
  return 1
}

# copy_sources TARGET: the project as a fresh clone would hold it.
copy_sources() {
  local present=() name
  for name in "${SOURCES[@]}"; do [ -e "$root/$name" ] && present+=("$name"); done
  mkdir -p "$1"
  tar -C "$root" --exclude=__pycache__ --exclude='*.egg-info' --exclude=_build -cf - "${present[@]}" | tar -C "$1" -xf -
}

# A number that changes when what would be installed changes.
fingerprint() {
  (cd "$root" && find "${INSTALLED[@]}" -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 cksum) | cksum
}

pip_install() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --constraint "$root/constraints.txt" "${@:2}"
}

# make_environment VENV: a new virtual environment that holds what builds the project.
make_environment() {
  local python
  python=$(find_python)
  rm -rf "$1"
  "$python" -m venv "$1"
  pip_install "$1" setuptools wheel
}

# ensure_installed VENV EXTRAS: a plain (not editable) install of the project as it is now.
ensure_installed() {
  local venv=$1 extras=$2 now stamp scratch
  stamp="$venv/callboard-sources"
  now="$(fingerprint) $extras"
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$now" ] && return
  if [ ! -f "$stamp" ]; then
    printf 'Making the virtual environment %s ...\n' "${venv#"$root"/}" >&2
    make_environment "$venv"
  fi
  scratch=$(mktemp -d)
  copy_sources "$scratch/source"
  printf 'unfinished\n' >"$stamp"
  "$venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes callboard 2>/dev/null || true
  pip_install "$venv" --no-build-isolation "$scratch/source$extras" ||
    { rm -rf "$scratch"; die "the installation into $venv failed"; }
  rm -rf "$scratch"
  printf '%s\n' "$now" >"$stamp"
}
