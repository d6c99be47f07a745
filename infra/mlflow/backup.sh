#!/usr/bin/env bash
# Back up MLflow's database: runs, metrics, registered models, users. Artifacts are on S3, which keeps its own versions.
#
#   PGHOST=... PGUSER=... PGPASSWORD=... PGDATABASE=... infra/mlflow/backup.sh FOLDER [KEEP]
#
# Writes FOLDER/DATABASE-YYYYMMDDTHHMMSSZ.dump, under that name when it is whole and can be read again, and deletes all
# but the last KEEP (14). The server may run meanwhile: a dump is of one moment.
set -euo pipefail
umask 077 # the users' password hashes are in it

if [ $# -lt 1 ] || [ -z "${PGDATABASE:-}" ]; then
  echo "usage: PGDATABASE=name $0 FOLDER [KEEP] (and PGHOST, PGUSER, PGPASSWORD)" >&2
  exit 1
fi
folder=$1 keep=${2:-14}
if ! [[ $keep =~ ^[1-9][0-9]*$ ]]; then
  echo "error: KEEP must be a number of backups from 1, got '$keep'" >&2
  exit 1
fi
mkdir -p "$folder"
name="$PGDATABASE-$(date -u +%Y%m%dT%H%M%SZ).dump"
aside="$folder/.$name.tmp"
trap 'rm -f "$aside"' EXIT

pg_dump --format=custom --no-owner --no-privileges --file="$aside"
pg_restore --file=/dev/null "$aside"
sync "$aside"
mv "$aside" "$folder/$name"

# Names sort by time. Only ours, and only after the new one is there.
find "$folder" -maxdepth 1 -name "$PGDATABASE-*Z.dump" | sort | head --lines="-$keep" | xargs --no-run-if-empty rm --
echo "$folder/$name"
