"""What the README promises about the library, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# In the library's example nothing of these may be imported, however indirectly.
FORBIDDEN = ("ray", "mlflow", "webdataset", "spacy", "boto3", "pipelines", "preprocessing")
REFUSE = f"import sys\nsys.modules.update(dict.fromkeys({FORBIDDEN!r}))\n"


def python_block(first_line: str) -> str:
    """The README's block of Python that holds a line."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if first_line in block)
    return found


def test_the_library_alone() -> None:
    code = REFUSE + python_block("from vse_core.losses import build_loss")
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    parts, rsum = run.stdout.strip().rsplit("\n", 1)
    assert "view" in parts
    assert 0 <= float(rsum) <= 600
