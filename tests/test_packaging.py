from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_agent_neither_installs_nor_imports_numpy() -> None:
    names = {line.split("==")[0] for line in (ROOT / "requirements/agent.txt").read_text().splitlines() if "==" in line}
    assert {"aiomqtt", "nvidia-ml-py", "msgspec"} <= names
    assert not names & {"numpy", "scipy", "scikit-learn"}
    code = "import sys, detectord.agent.daemon, detectord.host.kmsg, detectord.transport.mqtt, detectord.wiring;"
    code += "sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd="/", check=False).returncode == 0


def test_locked_requirements_have_hashes_and_name_no_host() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text


def test_every_command_has_help_with_an_example() -> None:
    def help_of(*words: str) -> str:
        command = [sys.executable, "-m", "detectord", *words, "--help"]
        return subprocess.run(command, cwd="/", check=True, capture_output=True, text=True).stdout

    commands = [
        ("agent",),
        ("scorer",),
        ("dry-run",),
        ("exclude",),
        ("schema",),
        ("inject", "xid"),
        ("parse", "kernel-log"),
    ]
    for command in commands:
        assert "Example: " in help_of(*command), command
        assert command[0] in help_of()


def test_an_error_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("[agent]\nintervall = 3\n")
    command = [sys.executable, "-m", "detectord", "agent", "--config", str(tmp_path / "d.toml")]
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean 'interval'?" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
