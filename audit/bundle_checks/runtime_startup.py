"""The world starts: the task resets and offers tools in every turn. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.run import Broken, guarded


@answers("runtime.startup")
def runtime_startup(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether `reset` gives a state that has a view, and every turn has at least one tool.

    Source: OpenEnv RFC 008, policy v2, runtime.startup.
    """
    faults: list[Any] = []
    started = guarded(lambda: subject.start_view)
    if isinstance(started, Broken):
        faults.append({"reset": started.error, "place": started.place})
    bare = [turn for turn in range(len(subject.draft.request["turns"])) if not subject.world.tools(subject.draft, turn=turn)]
    faults += [f"turn {turn} offers no tool" for turn in bare]
    measured = {"turns": len(subject.draft.request["turns"])}
    return [judged("runtime.startup", faults, why="the world does not start", remedy="repair reset or tools", measured=measured)]
