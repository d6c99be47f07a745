"""Remove what old versions of a model have left: their trainings, shards, evaluations, registered copies and runs.

python pipelines/prune.py --config pipelines/config/data/flickr8k.yaml --keep 5
python pipelines/prune.py --config pipelines/config/data/flickr8k.yaml --older-than 30d --to-size 50GB --yes

Without --yes it only tells what would go, and why the rest stays: versions with an alias, the champion before this one,
those of galleries, here or on the storage, and of services on this machine, what the next retraining reuses, and
unfinished runs. A version goes if all that is given allows it; runs without a version go by --older-than and --to-size
alone, those of a schedule also once it has kept N later versions. Folders that other runs use stay, as do shards on the
storage that a later version names. Runs of these versions go from MLflow, with their artifacts; the log stays.

Exit status: 0 done; 1 with one message if something is wrong; 75 a retraining of the model is running.
"""

import _repository  # noqa: F401

from pipelines.retention.prune import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)
