"""Name the captions of a data set that fit their image badly: wrong pairs, before they cost a training.

python pipelines/audit.py --config new_photographs.yaml flickr8k

A model that was not trained on them compares each caption with its image, and the result with the good pairs of
dataset.eval_split, of which a share (--loss, 5 %) would be named as well. misfits.csv names the captions, the worst
first, and is what `training.leave_out` takes; misfits.html shows the worst images. Without a model two are trained,
each on half of the images, and each audits the half that it has not seen:

    python pipelines/audit.py --config pipelines/config/data/flickr8k.yaml
"""

import _repository  # noqa: F401

from pipelines.evaluation.commands import audit_main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(audit_main)
