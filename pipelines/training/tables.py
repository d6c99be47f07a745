"""The tables that training processes map to start: the positions of a split's samples, its captions' tokens and more.

They are in `<work_dir>/tables/<split>/<fingerprint>/`, made once for all trainings on the same shards and words.
"""

import fcntl
from pathlib import Path

from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.kind import ModelKind
from pipelines.runtime.stage import ShardSet, StageDir, check_outputs, empty_folder, fingerprint, move_up
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.storage.atomic import locked
from preprocessing.storage.mirror import lock_file
from vse_core.digests import file_digest

# Raised when the same shards and words would give other tables.
VERSION = 2


def make_tables(
    root: Path,
    name: str,
    source: ShardSet,
    split: SplitData,
    encoder: CaptionEncoder,
    run: Path,
    kind: ModelKind,
    settings: KindSettings,
) -> Path:
    """Return the directory of a split's tables in a work folder, made if they are not there.

    `source` is the split's extraction; the captions' encoder is in the directory of a run. Raises DigestError if
    tables that are there were changed, and StageError as the kind's tables.
    """
    identity = {
        "version": VERSION,
        "shards": source.fingerprint,
        "feature": split.reader.feature,
        "encoder": [encoder.FILE, file_digest(run / encoder.FILE)],
        **kind.behaviour.tables_identity(settings, split),
    }
    tables = StageDir(root, f"tables/{name}", fingerprint(identity), source.directory.mirror)
    with locked(lock_file(root, tables.create(), "making"), fcntl.LOCK_EX):
        if not tables.is_complete():
            with empty_folder(tables.path) as made:
                split.reader.index.save(made)
                TokenTable.encode(split.reader.texts(), encoder).save(made)
                kind.behaviour.write_tables(settings, split, encoder, made)
                tables.complete({"captions": split.reader.num_captions}, move_up(made))
    tables.pull()
    check_outputs(tables.path)
    return tables.path
