r"""Retrain on a schedule: if the data has grown, train a challenger, and promote it if it is better.

    python pipelines/retrain.py --config pipelines/config/data/flickr8k.yaml

What is new since the last retraining is extracted and parsed; training begins with the champion's weights or, with
`retrain.start: scratch`, from scratch; the model is evaluated, registered as challenger, and judged against the
champion on the same evaluation split (pipelines/promote.py). If neither data nor settings have changed there is
nothing to do, and the command ends in seconds. The next start resumes a killed retraining.

Exit status: 0 done, or nothing new; 1 with one message if something is wrong; 75 another one is running. `ray job
submit` makes 1 of everything but 0: in <work_dir>/retrain/<model>/ status.json has the outcome of the last start, and
log.txt has a line for each; the run in MLflow says it in its tag `vse.outcome`. `retrain.notify` is told.
"""

import _repository  # noqa: F401

from pipelines.retraining.retrain import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)
