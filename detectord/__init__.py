"""detectord finds failing GPUs and nodes in training clusters."""

__version__ = "0.1.0"
