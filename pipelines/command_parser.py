"""The parser of every command line here."""

from __future__ import annotations

import argparse
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """Ends with status 1 and one message where the command line is wrong, as for every other mistake of the user's."""

    def error(self, message: str) -> NoReturn:
        """Exit with 1, the message and the usage."""
        self.exit(1, f"error: {message}\n{self.format_usage()}")
