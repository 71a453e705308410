"""Measured durations of shipped configurations, to suggest a faster one."""

from fna_lightning.config.resolve import shipped_configs

MEASURED_ON = "one core of an AMD EPYC"
# task -> configuration -> seconds of `fna-lightning fit`, slowest first; wall-clock time, with OMP_NUM_THREADS=1
SECONDS = {
    "TextClassification": {"imdb_small_fna": 761, "reviews_fna": 44},
    "ImageClassification": {"cifar10_hour_fna": 2055, "digits_fna": 12},
    "Translation": {"numbers_fna": 25},
}


def faster_config(task: str, config: str, seconds: float) -> tuple[str, float] | None:
    """Return a shipped configuration of the same task that takes less than half as long, with its measured seconds.

    Args:
        task: name of the class of the task.
        config: name of the configuration of the run; only a shipped one has an alternative.
        seconds: estimated time of the run.
    """
    if f"{config}.yaml" not in shipped_configs():
        return None
    candidates = SECONDS.get(task, {}).items()
    return next(((name, taken) for name, taken in candidates if taken < seconds / 2 and name != config), None)
