"""Learning-rate schedules as pure functions of the step, so that a resumed run cannot lose its place."""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def step_decay(milestones: list[int], factor: float) -> Schedule:
    """Multiply the rate by ``factor`` at every milestone (in steps): 0.1 once after 15 of 25 epochs in VSE-infinity."""
    return lambda step: factor ** sum(step >= milestone for milestone in milestones)


def cosine_decay(total_steps: int, floor: float) -> Schedule:
    """Decay by half a cosine from 1 at step 0 down to ``floor`` at ``total_steps``."""
    return lambda step: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(step, total_steps) / total_steps))


def constant() -> Schedule:
    """Keep the base rate."""
    return lambda _step: 1.0


def with_warmup(schedule: Schedule, warmup_steps: int, start: int = 0) -> Schedule:
    """Rise linearly over ``warmup_steps`` from step ``start``, on top of ``schedule``, whose steps count on.

    Before ``start`` the rate is that of ``schedule``: VSE-infinity warms up again when its CNN begins to be fine-tuned.
    """
    return lambda step: schedule(step) * (min(1.0, (step - start + 1) / (warmup_steps + 1)) if step >= start else 1.0)
