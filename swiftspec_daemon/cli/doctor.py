"""`swiftspec doctor`: what was found, what is wrong, and how to mend it.

Knows how findings are shown; finding them is `findings` and `findings_daemon`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from swiftspec_daemon.cli.findings import Report


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at everything that matters, and say what is wrong and how to mend it.

    Ends with status 1 if something is wrong. Starts nothing and changes nothing.
    """
    from swiftspec_daemon.cli.console import write_json

    report = examine()
    if as_json:
        facts, problems = report.facts, report.problems
        write_json({"ok": not problems, "problems": problems, "findings": facts})
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


def examine() -> Report:
    """Look at everything."""
    from swiftspec_daemon.cli import findings, findings_daemon

    report = findings.Report()
    findings.look_at_machine(report)
    findings_daemon.look_at_kernels(report)
    findings.look_at_gpus(report)
    loaded = findings_daemon.look_at_settings(report)
    findings_daemon.look_at_model(report, loaded)
    findings_daemon.look_at_tuning(report, loaded)
    findings_daemon.look_at_daemon(report, loaded)
    findings.look_at_packages(report)
    findings_daemon.look_at_paths(report)
    return report


def _print(report: Report) -> None:
    from rich.markup import escape

    from swiftspec_daemon.cli.console import output, print_facts

    console = output()
    for section, facts in report.facts.items():
        console.print(f"[bold]{escape(section)}[/]")
        shown = {name: escape(str(value)) for name, value in facts.items()}
        print_facts(console, shown, indent=2)
    if not report.problems:
        console.print("[bold green]Nothing is wrong.[/]")
    for problem in report.problems:
        console.print(f"[bold red]wrong:[/] {escape(problem.what)}")
        console.print(f"       {escape(problem.cure)}")
