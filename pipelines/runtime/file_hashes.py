"""The hashes of local files that a work folder keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.runtime.progress import progress_bar
from preprocessing.extraction.file_hashes import FileHashes

DATABASE = "file_hashes.sqlite"
_PATIENCE = 3.0


@contextmanager
def kept_hashes(work_dir: Path, is_read_only: bool) -> Iterator[FileHashes]:
    """Open the hashes for the block; a bar counts the files that are read, if that takes seconds."""
    with progress_bar("read new files", None, "files", delay=_PATIENCE) as bar:
        yield FileHashes(work_dir / DATABASE, is_read_only, bar.update)
