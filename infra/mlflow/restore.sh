#!/usr/bin/env bash
# Put a backup of MLflow's database back; all of it or, where anything fails, nothing.
#
#   PGHOST=... PGUSER=... PGPASSWORD=... PGDATABASE=... infra/mlflow/restore.sh FILE [--replace]
#
# Stop the server first. A database that holds tables is left alone unless --replace is given: then what is in it goes.
set -euo pipefail

if [ $# -lt 1 ] || [ -z "${PGDATABASE:-}" ]; then
  echo "usage: PGDATABASE=name $0 FILE [--replace] (and PGHOST, PGUSER, PGPASSWORD)" >&2
  exit 1
fi
file=$1 replace=${2:-}
if [ -n "$replace" ] && [ "$replace" != --replace ]; then
  echo "error: unknown option '$replace'; there is --replace" >&2
  exit 1
fi
# Read to its end before anything is touched: psql would take the end of a pipe for the end of the backup.
sql=$(mktemp)
trap 'rm -f "$sql"' EXIT
pg_restore --no-owner --no-privileges --file="$sql" "$file" || {
  echo "error: $file is no whole backup; take another one" >&2
  exit 1
}
tables=$(psql --no-psqlrc --tuples-only --no-align \
  --command "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'")
if [ "$tables" != 0 ] && [ "$replace" != --replace ]; then
  echo "error: $PGDATABASE holds $tables tables; add --replace to give them up, or name an empty database" >&2
  exit 1
fi

# The old schema goes in the same transaction as the new one comes.
psql --no-psqlrc --quiet --single-transaction --set=ON_ERROR_STOP=1 --output=/dev/null \
  --command='DROP SCHEMA IF EXISTS public CASCADE' --command='CREATE SCHEMA public' --file="$sql"
echo "restored $file into $PGDATABASE"
