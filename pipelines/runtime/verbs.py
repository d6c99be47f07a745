"""The `vse` command: `vse VERB ...` is `python pipelines/VERB.py ...`, wherever the package is installed."""

import argparse
import ast
import os
import runpy
import sys
from importlib.metadata import version
from pathlib import Path

import argcomplete

from pipelines.runtime.cli import CommandParser, run_command
from pipelines.runtime.commands import Caller

_SCRIPTS = Path(__file__).resolve().parents[1]
_SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def verbs() -> dict[str, str]:
    """Return the verbs in alphabetical order, each with the first line of its script's docstring."""
    scripts = sorted(path for path in _SCRIPTS.glob("*.py") if not path.name.startswith("_"))
    texts = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in scripts}
    return {verb: text.partition("\n")[0] for verb, text in texts.items()}


def main() -> None:
    """Read the verb, and run its script with what follows."""
    run_command(_main)


def _main() -> None:
    parser = _parser()
    line = os.environ.get("COMP_LINE", "") if "_ARGCOMPLETE" in os.environ else ""
    words = line.split()
    if len(words) + line.endswith(" ") > 2:
        # A shell asks what may follow the verb: the script's parser answers, as if the verb were the command.
        os.environ["_ARGCOMPLETE"] = "2"
        if words[1] in verbs():
            _run(words[1], words[2:])
        return
    options = parser.parse_args(sys.argv[1:2])
    if options.completion:
        sys.stdout.write(argcomplete.shellcode(["vse"], shell=options.completion))
    elif options.verb:
        _run(options.verb, sys.argv[2:])
    else:
        parser.print_help()


def _run(verb: str, arguments: list[str]) -> None:
    Caller.is_vse = True
    sys.argv[1:] = arguments
    sys.path.insert(0, str(_SCRIPTS))  # as Python does for a script
    runpy.run_path(str(_SCRIPTS / f"{verb}.py"), run_name="__main__")


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {verb:<12}{line}" for verb, line in verbs().items())
    parser = CommandParser(
        prog="vse",
        usage="vse [-h] [--version] [--completion=SHELL] VERB ...",
        description=f"Visual-semantic embedding: from images and captions to a registered model.\n\nverbs:\n{listed}",
        epilog="vse VERB --help tells more of a verb.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('vse-pipeline')}")
    completion = 'complete commands: eval "$(vse --completion=bash)"; or zsh, fish'
    parser.add_argument("--completion", choices=_SHELLS, metavar="SHELL", help=completion)
    parser.add_argument("verb", nargs="?", choices=list(verbs()), metavar="VERB", help=argparse.SUPPRESS)
    return parser
