"""The command before its commands are loaded: what it says of them is what they say, and it is quick."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

from assay.harness.cli.commands import commands
from assay.harness.cli.front import COMMANDS, front


def test_front_says_what_the_commands_say() -> None:
    said = {name: each.get_short_help_str(200) for name, each in commands.commands.items() if not each.hidden}
    assert said == COMMANDS


def test_front_runs_the_command_and_refuses_others() -> None:
    assert "--backend" in CliRunner().invoke(front, ["run", "--help"]).output
    wrong = CliRunner().invoke(front, ["rnu"])
    assert wrong.exit_code == 2 and "No such command 'rnu'" in wrong.output


def test_help_loads_no_torch() -> None:
    code = "import sys; from assay.harness.__main__ import front; front(['--help'], standalone_mode=False)"
    loaded = f"{code}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True).returncode == 0
