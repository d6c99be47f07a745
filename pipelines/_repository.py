"""Puts the repository first on the import path: every script of this folder imports this module first.

Python puts the script's own folder there, in which `evaluate.py` and `search.py` would hide installed packages.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])
