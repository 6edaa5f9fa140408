"""One TOML file becomes one frozen value; ``DETECTORD_MQTT__HOST=...`` in the environment overrides a key.

Unknown keys are refused with the nearest known key named, because a misspelt limit that is silently ignored
is found out in the night it was meant for.
"""

from __future__ import annotations

import difflib
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from detectord.core.errors import ConfigError

DEFAULT_PATH = Path("/etc/detectord/detectord.toml")
Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]
# A name becomes a level of an MQTT topic: a wildcard or a slash in it would address other nodes.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Listen = Annotated[str, Field(pattern=r"^(\S+:\d{1,5}|)$")]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mqtt(Section):
    """Where the broker is. ``password_file`` holds the password alone; TLS is on when ``ca_file`` is set."""

    host: str = "127.0.0.1"
    port: int = Field(default=1883, ge=1, le=65535)
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    keepalive: int = Field(default=30, ge=5, le=3600)


class Agent(Section):
    """``kernel_log`` is ``auto`` (kmsg, otherwise journald), ``kmsg``, ``journald`` or a file that is followed.
    ``metrics`` is host:port of the exporter, empty for none. ``nvml_deadline`` is in seconds a call."""

    node: Name = Field(default_factory=lambda: socket.gethostname().split(".")[0] or "localhost")
    interval: Seconds = 5.0
    state: Path = Path("/var/lib/detectord")
    kernel_log: str = "auto"
    accept_injected: bool = False
    metrics: Listen = "127.0.0.1:9464"
    nvml_deadline: Seconds = 2.0
    nvml_library: Path | None = None
    root: Path = Path("/")
    spool_megabytes: int = Field(default=32, ge=1)
    signals_off: tuple[str, ...] = ()


class Scorer(Section):
    """``database`` grows to ``database_megabytes`` at most; closed incidents are kept ``retention_days``."""

    database: Path = Path("/var/lib/detectord/scorer.db")
    database_megabytes: int = Field(default=512, ge=16)
    retention_days: float = Field(default=90, gt=0)
    metrics: Listen = "127.0.0.1:9465"
    accept_injected: bool = False
    join_causes: bool = True
    notify_from: Literal["info", "warning", "error", "critical"] = "warning"


class Exclusion(Section):
    """At most ``cap_share`` of the fleet and ``cap_nodes`` nodes are advised out at once (one is always allowed);
    advice ends ``hours`` after the last evidence."""

    cap_share: Share = 0.05
    cap_nodes: int = Field(default=8, ge=0)
    hours: float = Field(default=24, gt=0)


class Webhook(Section):
    """One receiver. ``secret_files`` hold Standard Webhooks secrets (``whsec_...``), the newest first."""

    name: Name = "webhook"
    url: str
    form: Literal["detectord", "alertmanager"] = "detectord"
    secret_files: tuple[Path, ...] = ()
    from_severity: Literal["info", "warning", "error", "critical"] = "warning"
    timeout: Seconds = 15.0


class Config(BaseSettings):
    """The whole configuration; every key has a default, so an empty file is a valid one."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="DETECTORD_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    cluster: Name = "default"
    mqtt: Mqtt = Mqtt()
    agent: Agent = Agent()
    scorer: Scorer = Scorer()
    exclusion: Exclusion = Exclusion()
    webhook: tuple[Webhook, ...] = ()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file (which arrives as init arguments)."""
        return env_settings, init_settings


def load(path: Path | None = None) -> Config:
    """Read ``path``; without one, the default path if it exists, otherwise the defaults. Raises ``ConfigError``."""
    where = path or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)
    return parse(_read(where) if where else {}, str(where or "the environment"))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; name another with --config, or create it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def parse(data: dict[str, Any], where: str) -> Config:
    """Make a configuration of a parsed TOML document. Raises ``ConfigError`` that names every wrong key."""
    try:
        return Config(**data)
    except ValidationError as error:
        lines = [_explain(problem["loc"], problem["msg"], problem["type"]) for problem in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(lines)) from error


def _explain(location: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in location)
    if kind != "extra_forbidden":
        return f"{key}: {message[0].lower()}{message[1:]}"
    known = _keys(location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"


def _keys(location: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "mqtt": Mqtt, "agent": Agent, "scorer": Scorer, "exclusion": Exclusion, "webhook": Webhook,
    }  # fmt: skip
    model = sections.get(str(location[0]), Config) if location else Config
    return list(model.model_fields)


def secret(path: Path) -> str:
    """The text of a file that holds a secret, without the line end. Raises ``ConfigError``."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the secret cannot be read: {error}") from error
    if not text:
        raise ConfigError(f"{path}: the secret is empty")
    return text
