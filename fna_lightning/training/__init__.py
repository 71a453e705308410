"""One training run: the training command line, run folders, loggers, schedules, samplers, sharding and signals."""
