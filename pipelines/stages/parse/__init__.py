"""Stage 2, parse: captions become graphs."""
