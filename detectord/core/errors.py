"""Errors an operator may see, and the exit code each one means.

DetectordError            1
|-- ConfigError           2   a configuration or an argument is wrong
|-- InputError            3   a file or text could not be read as what it should be
|-- WireError             -   a message is not what its topic promises (counted and dropped, never fatal)
`-- UnavailableError      4   a service or a device is not there
"""

from __future__ import annotations

from typing import ClassVar


class DetectordError(Exception):
    """Says what is wrong, where, and what to do."""

    exit_code: ClassVar[int] = 1


class ConfigError(DetectordError):
    exit_code = 2


class InputError(DetectordError):
    exit_code = 3


class WireError(DetectordError):
    """``reason`` is a short word for a counter's label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnavailableError(DetectordError):
    exit_code = 4
