"""The commands of `assay`, read off the command line itself."""

from __future__ import annotations

import click

from assay.harness.cli.commands import commands
from assay.suites.tables.markdown import literal, table


def commands_of_assay() -> str:
    """Every command that is not hidden, with the first sentence of its help."""
    shown = {name: command for name, command in sorted(commands.commands.items()) if not command.hidden}
    rows = ((literal(f"assay {name}"), _sentence(command)) for name, command in shown.items())
    return table(("command", "what it does"), rows)


def _sentence(command: click.Command) -> str:
    return (command.help or "").partition("\n\n")[0]
