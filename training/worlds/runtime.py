"""The sandbox for generated and foreign code: a process apart that reads its own folder, writes its scratch folder and nothing else.

Starts and kills processes. `Sandbox().run(...)` runs a program to its end; `Sandbox().start(...)` gives a worker that answers lines.
"""

from dataclasses import replace
from typing import Literal

from ledger.errors import SandboxRefused
from ledger.settings import Settings
from training.worlds.runtime_launch import SCRATCH, TASK, Confinement, Limits, Program
from training.worlds.runtime_protection import PROTECTIONS, Protections, protections
from training.worlds.runtime_run import Report, run_once
from training.worlds.runtime_worker import Worker

__all__ = ["PROTECTIONS", "SCRATCH", "TASK", "Limits", "Program", "Protections", "Report", "Sandbox", "Worker", "protections"]

Trust = Literal["hostile", "foreign"]
TRUSTS: tuple[Trust, ...] = ("hostile", "foreign")
ALLOW = "TALLY_SANDBOX_ALLOW_MISSING"


class Sandbox:
    """Where code runs that is not ours.

    Args:
        trust: `hostile` for code that may have been written to do harm (generated worlds): refused unless every protection holds;
            `foreign` for published code that is merely not ours: runs with what holds, as long as a sandbox can be made at all.
        allow_missing: protections that hostile code may do without; None for the setting `TALLY_SANDBOX_ALLOW_MISSING`.
        found: the machine's protections; None to find out.

    Raises:
        SandboxRefused: a protection that this trust requires does not hold.
    """

    def __init__(self, trust: Trust = "hostile", *, allow_missing: frozenset[str] | None = None, found: Protections | None = None) -> None:
        if trust not in TRUSTS:
            raise SandboxRefused(f"trust {trust!r} is none of {', '.join(TRUSTS)}")
        self.protections = found or protections()
        allowed = Settings().allowed_missing if allow_missing is None else allow_missing
        unknown = sorted(allowed - PROTECTIONS.keys())
        if unknown:
            raise SandboxRefused(f"{ALLOW} names {unknown[0]!r}; there are {', '.join(PROTECTIONS)}")
        missing = {name: why for name, why in self.protections.missing.items() if trust == "hostile" and name not in allowed}
        if self.protections.confinement is None:
            raise SandboxRefused(f"no sandbox can be made on this machine: {next(iter(self.protections.missing.values()), 'unknown')}")
        if missing:
            why = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
            raise SandboxRefused(f"hostile code would run without {why}; to allow it set {ALLOW}={','.join(sorted(missing))}")
        self._confinement: Confinement = self.protections.confinement

    def run(self, program: Program, *, stdin: bytes = b"", limits: Limits | None = None) -> Report:
        """The report on a program that ran to its end or to one of its limits.

        Raises:
            SandboxUnavailable: the sandbox could not be made, so nothing of the program ran.
        """
        report = run_once(self._confinement, program, limits or Limits(), stdin=stdin)
        return replace(report, held=tuple(self.protections.held), missing=dict(self.protections.missing))

    def start(self, program: Program, *, limits: Limits | None = None) -> Worker:
        """A worker that runs the program; close it.

        Raises:
            SandboxUnavailable: the sandbox cannot be started.
        """
        return Worker(self._confinement, program, limits or Limits())
