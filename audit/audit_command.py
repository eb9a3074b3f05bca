"""The group of commands `tally audit`; each subcommand has a module of its own, which loads what is heavy when it is called."""

import typer

from audit.attribute_command import attribute
from audit.benchmark_command import benchmark
from audit.claims_command import claims
from audit.run_command import run
from audit.scan_command import scan_command
from audit.update_command import update
from audit.verifier_command import counterexample, verifier

audit = typer.Typer(no_args_is_help=True, help="Whose fault a failure was, and what can be believed.")
audit.command("run")(run)
audit.command("attribute")(attribute)
audit.command("update")(update)
audit.command("verifier")(verifier)
audit.command("counterexample")(counterexample)
audit.add_typer(claims, name="claims")
audit.command("scan")(scan_command)
audit.command("benchmark")(benchmark)


@audit.callback()
def _audit() -> None:
    """Whose fault a failure was, and what can be believed."""
