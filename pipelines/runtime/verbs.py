"""The `vse` command: `vse VERB ...` is `python pipelines/VERB.py ...`, wherever the package is installed."""

import argparse
import ast
import runpy
import sys
from importlib.metadata import version

from pipelines.runtime.cli import CommandParser, run_command
from pipelines.runtime.commands import Caller, scripts


def verbs() -> dict[str, str]:
    """Return the verbs in alphabetical order, each with the first line of its script's docstring."""
    texts = {verb: ast.get_docstring(ast.parse(path.read_text())) or "" for verb, path in scripts().items()}
    return {verb: text.partition("\n")[0] for verb, text in texts.items()}


def main() -> None:
    """Read the verb, and run its script with what follows."""
    run_command(_main)


def _main() -> None:
    listed = "\n".join(f"  {verb:<12}{line}" for verb, line in verbs().items())
    parser = CommandParser(
        logs=False,
        prog="vse",
        usage="vse [-h] [--version] VERB ...",
        description=f"Visual-semantic embedding: from images and captions to a registered model.\n\nverbs:\n{listed}",
        epilog="vse VERB --help tells more of a verb.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('vse-pipeline')}")
    parser.add_argument("verb", nargs="?", choices=list(verbs()), metavar="VERB", help=argparse.SUPPRESS)
    verb = parser.parse_args(sys.argv[1:2]).verb
    if verb is None:
        parser.print_help()
        return
    Caller.is_vse, Caller.verb = True, verb
    del sys.argv[1]
    script = scripts()[verb]
    sys.path.insert(0, str(script.parent))  # as Python does for a script
    runpy.run_path(str(script), run_name="__main__")
