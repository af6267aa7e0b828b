"""The command line: every knob has a flag, a variable and a default in --help; wrong usage is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from psono_operator import __version__
from psono_operator.api.crd import crd_text
from psono_operator.cli.commands import main
from psono_operator.settings import Settings, SettingsError, flag, knobs, resolve, variable


def test_every_knob_stands_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"], {})
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, knob in knobs().items():
        assert f"{flag(name)} {knob.metavar}".rstrip() in text
        assert f"[{variable(name)}]" in text
        if knob.default:
            assert f"(default: {knob.default})" in text
    assert "exit codes: 0 stopped cleanly, 1 failed, 2 wrong usage or configuration" in text


def test_flags_go_before_variables_and_variables_before_defaults() -> None:
    environ = {"PSONO_OPERATOR_WORKERS": "8", "PSONO_OPERATOR_WATCH_NAMESPACE": "a, b,"}
    assert resolve({}, {}) == Settings(
        kubeconfig=None, context=None, watch_namespace=(), no_leader_elect=False, leader_election_namespace=None,
        http_address=("0.0.0.0", 8080), workers=32, log_level="info", log_format="text",
    )  # fmt: skip
    assert resolve({}, {"PSONO_OPERATOR_NO_LEADER_ELECT": "true"}).no_leader_elect
    assert resolve({"no_leader_elect": "true"}, {"PSONO_OPERATOR_NO_LEADER_ELECT": "false"}).no_leader_elect
    assert resolve({}, environ).workers == 8
    assert resolve({"workers": "4"}, environ).workers == 4
    assert resolve({}, environ).watch_namespace == ("a", "b")
    assert resolve({"watch_namespace": ["c", "d"]}, environ).watch_namespace == ("c", "d")


@pytest.mark.parametrize(
    ("given", "environ", "message"),
    [
        ({"workers": "0"}, {}, "--workers must be a whole number from 1 to 256"),
        (
            {},
            {"PSONO_OPERATOR_NO_LEADER_ELECT": "yes"},
            "PSONO_OPERATOR_NO_LEADER_ELECT must be true or false",
        ),
        ({"workers": "many"}, {}, "--workers must be a whole number from 1 to 256"),
        (
            {},
            {"PSONO_OPERATOR_LOG_LEVEL": "loud"},
            "PSONO_OPERATOR_LOG_LEVEL must be one of debug, info, warning, error",
        ),
        (
            {"http_address": "8080"},
            {},
            "--http-address must be HOST:PORT, for example 0.0.0.0:8080 or [::]:8080",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_takes(
    given: dict[str, str], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(given, environ)
    assert str(caught.value) == message


def test_an_ipv6_address_is_understood() -> None:
    assert resolve({"http_address": "[::1]:80"}, {}).http_address == ("::1", 80)


def test_crd_prints_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd"], {}) == 0
    assert capsys.readouterr().out == crd_text()


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A real process with a bare environment."""
    return subprocess.run(
        [sys.executable, "-m", "psono_operator", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={"HOME": "/nonexistent", **environ},
    )  # fmt: skip


def test_version() -> None:
    assert command("--version").stdout == f"psono-operator {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["nonsense", "--help"]),
        (["run", "--nonsense"], ["--nonsense", "--help"]),
        (["run", "--workers", "0"], ["--workers", "1 to 256"]),
        (["run", "--kubeconfig", "/nonexistent/config"], ["/nonexistent/config", "does not exist"]),
        (["run"], ["--kubeconfig", "KUBECONFIG", "/nonexistent/.kube/config"]),
    ],
)
def test_wrong_usage_and_configuration_end_with_2_and_one_line(
    arguments: list[str], words: list[str]
) -> None:
    ended = command(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    for word in words:
        assert word in ended.stderr


def test_a_broken_kubeconfig_is_one_line_without_its_content(tmp_path: Path) -> None:
    """F8."""
    broken = tmp_path / "config"
    broken.write_text("users: [canary: [\n")
    ended = command("run", f"--kubeconfig={broken}")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert str(broken) in ended.stderr
    assert "canary" not in ended.stderr


def test_a_malformed_proxy_variable_is_one_line_without_its_value(tmp_path: Path) -> None:
    """F4."""
    config = tmp_path / "config"
    config.write_text(
        '{"current-context": "a", "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],'
        ' "users": [{"name": "a", "user": {}}], "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}'
    )
    ended = command("run", f"--kubeconfig={config}", HTTPS_PROXY="socks5://user:canary@proxy")
    assert ended.returncode == 2
    assert "HTTPS_PROXY" in ended.stderr
    assert "canary" not in ended.stderr


def test_help_and_crd_load_no_http_stack() -> None:
    """Start-up stays quick for those who only look."""
    code = (
        "import sys; from psono_operator.cli.commands import main; main(['crd'], {});"
        "print([each for each in ('aiohttp', 'kubernetes_asyncio', 'nacl') if each in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stderr == "[]\n"
