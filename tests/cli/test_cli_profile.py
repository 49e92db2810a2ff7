"""--profile, wherever settings are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from longline.cli.main import cli
from longline.core.errors import BadOption


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings of two profiles."""
    text = "profiles:\n  small: {home: small-home}\n  large: {home: large-home}\n"
    (tmp_path / "longline.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["run", "n8n"],
        ["plan", "n8n"],
        ["sources"],
        ["sources", "check", "n8n"],
        ["resume"],
        ["jobs"],
        ["records", "list"],
        ["checkpoints"],
        ["config", "show"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_an_unknown_profile(words: list[str]) -> None:
    answer = CliRunner().invoke(cli, [*words, "--profile", "smal"])

    assert isinstance(answer.exception, BadOption)
    assert answer.exception.option == "--profile"
    assert all(name in answer.exception.problem for name in ("longline.yaml", "small", "large"))


def test_a_profile_chooses_the_home_of_a_run(folder: Path) -> None:
    manifest = "manifest: command\nname: one\ncommand: [echo, '{{\"id\": 1}}']\n"
    (folder / "one.yaml").write_text(manifest)

    answer = CliRunner().invoke(cli, ["run", "one.yaml", "--profile", "small", "--json"])

    assert answer.exit_code == 0, answer.output
    assert (folder / "small-home").is_dir()
