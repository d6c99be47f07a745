"""A folder on a disk or on S3 behind one protocol, and a work folder that is mirrored on it."""
