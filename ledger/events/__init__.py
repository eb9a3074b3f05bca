"""All events: past participles, one file a noun; the class name is the kind, and a kind's schema never changes."""

from ledger.events.base import BlobRef, Edge, EventBody, LedgerCreated, LogForked
from ledger.events.model_call import ModelCallDispatched, ModelCalled, TokenArray, VersionSpan
from ledger.events.review import FindingRaised, Rejudged, ReviewDecided, SubjectRecalled, SubjectShredded
from ledger.events.rollout import (
    EngineRefreshed,
    FaultInjected,
    HistoryRewritten,
    Participant,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
)
from ledger.events.task import (
    BundleAdmitted,
    BundleRejected,
    BundleSealed,
    CheckRan,
    GroupDispatched,
    HarnessRegistered,
    SplitRead,
    VerifierRegistered,
    WorldRegistered,
)
from ledger.events.training import (
    BatchAssembled,
    BatchRow,
    DatasetSealed,
    EvaluationMeasured,
    LossWeight,
    ModelVersionPublished,
    RunConfigured,
    TrainingRow,
    UpdateApplied,
)
from ledger.events.verdict import ConditionResult, RewardDerived, VerdictGiven

EVENT_CLASSES: tuple[type[EventBody], ...] = (
    LedgerCreated, LogForked, WorldRegistered, VerifierRegistered, HarnessRegistered, BundleSealed, CheckRan,
    BundleAdmitted, BundleRejected, SplitRead, GroupDispatched,
    RolloutStarted, ToolCalled, StateSnapshotted, HistoryRewritten, RolloutEnded, FaultInjected, EngineRefreshed,
    ModelCallDispatched, ModelCalled, VerdictGiven, RewardDerived, RunConfigured, ModelVersionPublished,
    BatchAssembled, UpdateApplied, DatasetSealed, EvaluationMeasured,
    ReviewDecided, FindingRaised, SubjectRecalled, SubjectShredded, Rejudged,
)  # fmt: skip

__all__ = [
    "EVENT_CLASSES",
    "BatchAssembled",
    "BatchRow",
    "BlobRef",
    "BundleAdmitted",
    "BundleRejected",
    "BundleSealed",
    "CheckRan",
    "ConditionResult",
    "DatasetSealed",
    "Edge",
    "EngineRefreshed",
    "EvaluationMeasured",
    "EventBody",
    "FaultInjected",
    "FindingRaised",
    "GroupDispatched",
    "HarnessRegistered",
    "HistoryRewritten",
    "LedgerCreated",
    "LogForked",
    "LossWeight",
    "ModelCallDispatched",
    "ModelCalled",
    "ModelVersionPublished",
    "Participant",
    "Rejudged",
    "ReviewDecided",
    "RewardDerived",
    "RolloutEnded",
    "RolloutStarted",
    "RunConfigured",
    "SplitRead",
    "StateSnapshotted",
    "SubjectRecalled",
    "SubjectShredded",
    "TokenArray",
    "ToolCalled",
    "TrainingRow",
    "UpdateApplied",
    "VerdictGiven",
    "VerifierRegistered",
    "VersionSpan",
    "WorldRegistered",
]
