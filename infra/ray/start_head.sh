#!/usr/bin/env bash
# Start a Ray head on this machine for the pipeline's jobs; what is given on the command line goes to `ray start`.
#
# Jobs get the head's environment, not that of the shell that submits them: VSE_DATA and VSE_WORK_DIR are made absolute
# and exported here. Token authentication is set explicitly, since Ray turns it on by itself on some machines and not on
# others, and then the two sides disagree.
set -euo pipefail

here=$(pwd)
cd "$(dirname "$0")/../.." # jobs without a working directory of their own run where the head was started
[ -d .venv ] && export PATH="$PWD/.venv/bin:$PATH"
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$here/$1" ;; esac; }
[ -n "${VSE_DATA:-}" ] && VSE_DATA=$(absolute "$VSE_DATA") && export VSE_DATA
VSE_WORK_DIR=$(absolute "${VSE_WORK_DIR:-$HOME/vse-work}") && export VSE_WORK_DIR
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}

if [ "$RAY_AUTH_MODE" = token ] && [ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ]; then
  [ -s "$HOME/.ray/auth_token" ] || (umask 077 && ray get-auth-token --generate > /dev/null)
  chmod 600 "$HOME/.ray/auth_token"
fi
# Features and checkpoints do not go through the object store; Ray's own default would take 30 % of the memory.
ray start --head --object-store-memory 300000000 "$@"

cat << END

Data of the jobs:    VSE_DATA=${VSE_DATA:-(not set: only the generated scenes can be used)}
Output of the jobs:  VSE_WORK_DIR=$VSE_WORK_DIR
In the shell that submits:
  export RAY_AUTH_MODE=$RAY_AUTH_MODE RAY_API_SERVER_ADDRESS=http://127.0.0.1:8265
  ray job submit -- python pipelines/full.py
END
