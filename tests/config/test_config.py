from __future__ import annotations

from pathlib import Path

import pytest

from detectord.config import Config, load, parse, secret
from detectord.core.errors import ConfigError


def test_an_empty_file_is_a_valid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "detectord.toml"
    path.write_text("")
    assert load(path) == Config()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clustr = 'a'", "did you mean 'cluster'?"),
        ("[agent]\nintervall = 3", "did you mean 'interval'?"),
        ("[[webhook]]\nurl = 'http://h'\nsecret_file = ['x']", "did you mean 'secret_files'?"),
        ("[mqtt]\nzzz = 3", "known keys: host"),
        ("[agent]\ninterval = -1", "agent.interval"),
        ("[agent]\nnode = 'a/#'", "agent.node"),
        ("[mqtt]\nport = 99999", "mqtt.port"),
        ("cluster = ", "is not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_would_be_right(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "detectord.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")


def test_the_environment_overrides_one_key_and_leaves_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTORD_MQTT__HOST", "broker.example")
    config = parse({"mqtt": {"port": 8883}}, "test")
    assert (config.mqtt.host, config.mqtt.port) == ("broker.example", 8883)


def test_a_secret_is_read_without_its_line_end_and_must_not_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("whsec_abc\n")
    assert secret(path) == "whsec_abc"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="empty"):
        secret(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        secret(tmp_path / "absent")
