"""The files of a machine, and its GPUs as the driver lists them in ``/proc`` (also when NVML is dead)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from detectord.core.errors import InputError
from detectord.core.model import Item, Status, Subject, SubjectKind
from detectord.core.ports import Answer, Answers, FileQuestion, Question
from detectord.formats.nvrm import normal_address

MOST_BYTES = 8 << 20


def boot_id(root: Path = Path("/")) -> str:
    """Raises ``InputError`` where there is no /proc."""
    path = root / "proc/sys/kernel/random/boot_id"
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the boot id cannot be read ({error}); is /proc mounted?") from error


class FileHost:
    """Answers file questions below ``root``. Files of /proc and /sys that do not touch a server are read in place: they
    cannot block."""

    def __init__(self, node: str, root: Path = Path("/")) -> None:
        self._node, self._root = node, root

    async def ask(self, subject: Subject, questions: Sequence[Question], deadline: float) -> Answers:
        return {question: self._answer(question) for question in questions}

    def _answer(self, question: Question) -> Answer:
        if not isinstance(question, FileQuestion):
            return Answer(Status.UNSUPPORTED, error="this host reads files alone")
        began = time.monotonic()
        try:
            with (self._root / question.path).open("rb") as file:
                value = file.read(MOST_BYTES)
        except FileNotFoundError:
            return Answer(Status.UNSUPPORTED, error=f"/{question.path}: not on this machine")
        except OSError as error:
            return Answer(Status.FAILED, took=time.monotonic() - began, error=f"/{question.path}: {error.strerror}")
        return Answer(Status.OK, value, time.monotonic() - began)

    async def inventory(self) -> Sequence[Item]:
        """The GPUs of ``/proc/driver/nvidia/gpus/*/information``, by PCI address."""
        items = []
        for index, path in enumerate(sorted((self._root / "proc/driver/nvidia/gpus").glob("*/information"))):
            try:
                text = path.read_text("utf-8", "replace")
            except OSError:
                continue
            fields = {
                name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())
            }
            uuid = fields.get("GPU UUID", "")
            if not uuid.startswith("GPU-") or "?" in uuid:
                continue
            address = normal_address(path.parent.name)
            labels = {"pci": address, "index": str(index), "model": fields.get("Model", "")}
            items.append(Item(Subject(self._node, SubjectKind.GPU, uuid), labels))
        return items

    async def close(self) -> None:
        """Nothing is held open."""
