#!/usr/bin/env bash
# Start the MLflow server: PostgreSQL behind it, artifacts on S3 through it, users with passwords before it.
#
# PGHOST, PGUSER, PGPASSWORD, PGDATABASE   the database, in libpq's own variables: no password on a command line
# MLFLOW_ARTIFACTS                         s3://bucket/folder; the bucket must be there
# AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ... S3, as for every AWS tool
# MLFLOW_AUTH_ADMIN_PASSWORD               of the first user, "admin"
# MLFLOW_FLASK_SERVER_SECRET_KEY           any long random text; signs forms
# MLFLOW_SERVER_ALLOWED_HOSTS              names under which browsers and clients reach the server: "mlflow:5000,..."
# MLFLOW_WORKERS                           processes that answer (2)
set -euo pipefail

for name in PGHOST PGUSER PGPASSWORD PGDATABASE MLFLOW_ARTIFACTS MLFLOW_AUTH_ADMIN_PASSWORD \
  MLFLOW_FLASK_SERVER_SECRET_KEY MLFLOW_SERVER_ALLOWED_HOSTS; do
  if [ -z "${!name:-}" ]; then
    echo "error: $name is not set; infra/mlflow/serve.sh says what it is" >&2
    exit 1
  fi
done

here=$(cd "$(dirname "$0")" && pwd)
export MLFLOW_AUTH_CONFIG_PATH="$here/basic_auth.ini"
export MLFLOW_DISABLE_TELEMETRY=true
# Jobs of MLflow's own, for evaluating language models, would be a dozen processes more.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false

exec mlflow server --app-name basic-auth --host "${MLFLOW_HOST:-0.0.0.0}" --port "${MLFLOW_PORT:-5000}" \
  --workers "${MLFLOW_WORKERS:-2}" --backend-store-uri postgresql+psycopg2:// \
  --artifacts-destination "$MLFLOW_ARTIFACTS"
