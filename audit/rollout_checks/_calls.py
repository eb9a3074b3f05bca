"""The model calls of a rollout by what they are: completed, with tokens, of a trainable participant. Pure."""

from collections.abc import Iterator, Mapping

from audit.rollout_subject import RolloutSubject, SeenCall
from ledger.events import ModelCalled
from ledger.token_calls import TokenCall


def completed(subject: RolloutSubject) -> Iterator[tuple[SeenCall, ModelCalled]]:
    """The calls that were answered in full, with their answers."""
    for call in subject.calls:
        if call.answered is not None and call.answered.status == "completed":
            yield call, call.answered


def with_tokens(subject: RolloutSubject) -> Iterator[tuple[SeenCall, ModelCalled, TokenCall]]:
    """The completed calls whose arrays are there."""
    for call, answered in completed(subject):
        if call.tokens is not None:
            yield call, answered, call.tokens


def trainable(subject: RolloutSubject) -> Mapping[str, bool]:
    """Participant to whether its samples may be trained on."""
    return {member.name: member.trainable for member in subject.started.participants}


def temperature(answered: ModelCalled) -> float:
    """Sampling temperature of a call; 1 where nothing says otherwise."""
    given = answered.sampling.get("temperature")
    return float(given) if isinstance(given, int | float) else 1.0


def started_id(subject: RolloutSubject) -> str:
    """The event of the rollout's start."""
    return next(event.event_id for event in subject.own if event.kind == "RolloutStarted")


def scripted(subject: RolloutSubject, participant: str) -> bool:
    """Whether a participant plays a script, which samples nothing and counts nothing."""
    member = next((one for one in subject.started.participants if one.name == participant), None)
    return member is not None and (member.endpoint == "scripted" or (member.model_version or "").startswith("scripted-"))
