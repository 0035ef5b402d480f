"""The command `assay` before it is known which of its commands is asked for: `assay --help` imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

COMMANDS: Mapping[str, str] = {
    "bench": "Time a backend against others: steady state, cold compile, peak memory.",
    "bisect": "Find the graph, half, node, fusion or kernel with which CASE begins to differ, and two "
    "commands one step apart.",
    "compare": "What changed between two reports of `run` or of `bench`; exit 1 if anything got worse.",
    "env": "Show what a report says of this machine, and the facts that the compiler has measured of it.",
    "kernels": "What kernels take of a GPU, summed up over files that `run --kernels` wrote.",
    "ladder": "Find the first rung on which CASE differs from eager: eager, Dynamo, each state of the "
    "compiler, the whole.",
    "list": "List cases with their modes, sizes and tags; of `ops` the operators with their dtypes and forms.",
    "measure": "Measure this commit: first call, steady call, calls of Python functions; kept in the store.",
    "memory": "Show the memory of one training step: live bytes over it, what is saved, what is recomputed and why.",
    "merge": "Take the runs of stores into the store TARGET.",
    "nightly": "Run a whole night within a time, and write its page: what broke, where, since when, and is it new.",
    "profile": "Show how the error against float64 grows along the graphs of CASE, in eager and on the backend.",
    "publish": "Write the site of a run: static pages in one folder.",
    "record": "Take JSON reports of `assay run` into the store, as one run.",
    "regressions": "List what got worse from commit to commit: by how much, at which commit, and whether "
    "the kernels changed.",
    "repro": "Write one file that needs torch alone and fails as CASE does, and the text of an issue.",
    "run": "Run cases on a backend and hold everything that they do against eager.",
    "selftest": "Try known faults with the ordinary run, and say which of them it finds.",
    "shrink": "Make CASE smaller as long as it fails in the same way, at the first rung that differs.",
    "triage": "Say what a run found: its causes, which of them are new, known or fixed, and what is flaky.",
}
"""What each command does, in the words of its own help; a test holds the two together."""


class Front(click.Group):
    """Loads a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return loaded().commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def loaded() -> click.Group:
    """All commands."""
    group: click.Group = importlib.import_module("assay.harness.cli.commands").commands
    return group


@click.group(cls=Front, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="assay", prog_name="assay")
def front() -> None:
    """Does this compiled program do everything that eager does? And how fast?"""
