"""The learning rates of a training step."""

from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingConfig
from pipelines.kinds import ImageEncoderConfig
from vse_core.training.schedule import Schedule, constant, cosine_decay, step_decay, with_warmup


def rate_factors(model: ModelConfig) -> dict[str, float]:
    """Return the factors of the learning rate for parts of the model."""
    sides = {"text_encoder": model.text, "image_encoder": model.image}
    return {f"{side}.{name}": factor for side, own in sides.items() for name, factor in own.rate_factors().items()}


def build_schedule(training: TrainingConfig, image: ImageEncoderConfig, steps_per_epoch: int) -> Schedule:
    """Return the configured learning-rate schedule, in steps."""
    decay = training.decay
    if decay.name == "step":
        schedule = step_decay([point.steps(steps_per_epoch) for point in decay.at], decay.factor)
    elif decay.name == "cosine":
        schedule = cosine_decay(max(1, training.epochs) * steps_per_epoch, decay.floor)
    else:
        schedule = constant()
    schedule = with_warmup(schedule, training.warmup.steps(steps_per_epoch))
    return with_warmup(schedule, *image.release(steps_per_epoch))
