#!/bin/bash
# Prepares one machine of a cluster, head or worker, as the launcher files ask for it: a Python
# environment with calsweep, the access token, and the settings that every later shell sees.
# When run again, it does only what is missing. Settings, from the environment:
#   CALSWEEP_STORE   where records go: a URI or a path that all machines see (required)
#   CALSWEEP_VENV    the environment; one that you made yourself is used unchanged (~/calsweep-venv)
#   CALSWEEP_DATA    where image datasets are on this machine (./data)
#   CALSWEEP_EXTRAS  extras of the package that the store needs, e.g. s3 (none)
#   CALSWEEP_PIP     further packages, e.g. boto3 on an AWS head (none)
#   CALSWEEP_PYTHON  the Python that a new environment is made with (python3)
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${CALSWEEP_VENV:-$HOME/calsweep-venv}
python=${CALSWEEP_PYTHON:-python3}
extras=${CALSWEEP_EXTRAS:+[$CALSWEEP_EXTRAS]}
token=$HOME/.ray/auth_token
mark=$venv/.calsweep

fail() {
  echo "calsweep setup: $1" >&2
  exit 1
}

[ -n "${CALSWEEP_STORE:-}" ] || fail "CALSWEEP_STORE is not set; name a store that all machines see"
[ -s "$token" ] || fail "$token is missing; make one with: ray get-auth-token --generate"
chmod 700 "$(dirname "$token")"
chmod 600 "$token" # Ray writes it readable by all

if [ -x "$venv/bin/python" ] && [ ! -e "$mark" ]; then
  "$venv/bin/python" -c 'import ray, sweeps' || fail "$venv has no calsweep; install it there"
else
  wanted=$(cat "$project/pyproject.toml" "$project/constraints.txt" | sha256sum)
  wanted="$wanted $extras ${CALSWEEP_PIP:-}"
  if [ ! -e "$mark" ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      fail "$python is older than 3.11; name another as CALSWEEP_PYTHON"
    if ! "$python" -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
      sudo apt-get -qq -o DPkg::Lock::Timeout=300 update
      sudo apt-get -qq -o DPkg::Lock::Timeout=300 install -y python3-venv
    fi
    "$python" -m venv "$venv"
    : >"$mark" # ours from here on, even if the next steps are interrupted
  fi
  if [ "$(cat "$mark")" != "$wanted" ]; then
    # shellcheck disable=SC2086 # CALSWEEP_PIP is a list
    "$venv/bin/python" -m pip install --quiet --prefer-binary \
      --constraint "$project/constraints.txt" --editable "$project$extras" ${CALSWEEP_PIP:-}
    printf '%s' "$wanted" >"$mark"
  fi
fi

{
  printf 'export PATH=%q:"$PATH"\n' "$venv/bin"
  printf 'export RAY_AUTH_MODE=token\n'
  printf 'export RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true\n' # nothing phones home
  printf 'export CALSWEEP_STORE=%q\n' "$CALSWEEP_STORE"
  [ -z "${CALSWEEP_DATA:-}" ] || printf 'export CALSWEEP_DATA=%q\n' "$CALSWEEP_DATA"
  # Your own file, never written here: credentials of MLflow and of the store, as NAME=value lines.
  echo '[ ! -r ~/.calsweep.secrets ] || { set -a; . ~/.calsweep.secrets; set +a; }'
} >"$HOME/.calsweep.env"
grep -qsF '. ~/.calsweep.env' "$HOME/.bashrc" || echo '. ~/.calsweep.env' >>"$HOME/.bashrc"
