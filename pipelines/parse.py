"""Stage 2, parse: the captions in the feature shards become objects, attributes and relations.

Each split has its own directory, `<work_dir>/parse/<split>/<fingerprint>/`, with a shard of graphs for each feature
shard, under the same keys. The pipeline runs this stage if the model or a protocol needs its output.

python pipelines/parse.py --config pipelines/config/data/flickr8k_univse.yaml
"""

import _repository  # noqa: F401

from pipelines.stages.runner import main

if __name__ == "__main__":
    main("parse")
