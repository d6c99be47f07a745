"""The outcomes of all hostile cases, as the documentation publishes them.

python tests/integration/hostile/table.py     runs all cases and writes tests/benchmarks/results/hostile.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.integration.hostile.case import all_cases  # noqa: E402 (found only now where this is run as a script)
from tests.integration.hostile.judge import Judged, judge  # noqa: E402
from tests.integration.seams.pipeline import make_pipeline  # noqa: E402

RESULT = ROOT / "tests" / "benchmarks" / "results" / "hostile.json"


def counted(judged: Sequence[Judged]) -> dict[str, int]:
    """Return the number of cases, of each outcome that was as expected, and of tracebacks and silent ones."""
    outcomes = dict.fromkeys(("refused", "skipped", "repaired", "harmless"), 0)
    for each in judged:
        outcomes[each.case.outcome] += not each.faults
    wrong = {
        "otherwise": sum(bool(each.faults) for each in judged),
        "tracebacks": sum(each.has_traceback for each in judged),
        "silent": sum(each.is_silent for each in judged),
    }
    return {"cases": len(judged), **outcomes, **wrong}


def written() -> list[tuple[int, str, str]]:
    """Return item, name and outcome of the cases in the published result."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    return [(each["item"], each["name"], each["outcome"]) for each in result["cases"]]


def main() -> None:
    """Run all cases one after the other, write the result, and print what was not as it must be."""
    begun, judged = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        world = make_pipeline(Path(folder) / "world")
        made = time.monotonic() - begun
        for number, case in enumerate(all_cases()):
            judged.append(judge(case, world, Path(folder) / str(number)))
            if judged[-1].faults:
                sys.stdout.write(f"{case.item} {case.name}: {'; '.join(judged[-1].faults)}\n")
    cases = [
        {
            "item": each.case.item,
            "name": each.case.name,
            "outcome": each.case.outcome,
            "status": each.status,
            "message": each.message.replace(folder, "")[:300],
            "seconds": round(each.seconds, 2),
        }
        for each in judged
    ]
    result = {
        "counts": counted(judged),
        "seconds": {"world": round(made, 1), "all": round(time.monotonic() - begun, 1)},
        "cases": cases,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{result['counts']} {result['seconds']}\n")


if __name__ == "__main__":
    main()
