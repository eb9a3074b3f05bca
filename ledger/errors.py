"""Every error that Tallystick raises for misuse, flat, one sentence each.

To add one: subclass TallyError, say in one line when it is raised, and raise it with the value seen and the values allowed.
"""


class TallyError(Exception):
    """Base of all errors that Tallystick raises on purpose."""


class SettingsError(TallyError):
    """A deployment setting is missing, malformed or contradicts another."""


class EmbeddedPostgresError(TallyError):
    """The embedded PostgreSQL could not be made, started, reached or stopped."""


class DownloadFailed(TallyError):
    """A wheel that is used as data could not be fetched or does not match its own record."""


class VenvFailed(TallyError):
    """A package's own virtual environment could not be made; the message holds the end of what the installer said."""


class EngineFailed(TallyError):
    """A local inference server could not be started, reached, refreshed or stopped."""


class CanonicalError(TallyError):
    """A value has no canonical form: NaN, infinity, an integer beyond 2^53, a lone surrogate, a duplicate key or a NUL."""


class InvalidEvent(TallyError):
    """An event's body or envelope does not fit its schema or its limits."""


class LimitExceeded(InvalidEvent):
    """A body, a blob, an event or an append holds more than is allowed; nothing of it is written."""


class SecretFound(TallyError):
    """Something that looks like a credential would have been stored; the message names pattern and place, never the secret."""


class IdempotencyConflict(TallyError):
    """An idempotency key is taken by an event with other content."""


class VersionConflict(TallyError):
    """A stream is not at the version that the writer expected."""


class BlobError(TallyError):
    """A blob is missing, too large, or its bytes do not match its commitment."""


class BlobWithheld(BlobError):
    """A blob came from another ledger without the key to read it."""


class ForeignStream(TallyError):
    """A stream belongs to another ledger, which alone may append to it."""


class ExportFault(TallyError):
    """A line of an export does not fit; the message names the first."""


class PushRefused(TallyError):
    """A log cannot be taken over from another ledger as it is."""


class DivergedLog(PushRefused):
    """Two histories of one log were shown: the one taken over before and the one pushed now."""


class TokenError(TallyError):
    """Token arrays of a call cannot be packed, unpacked or put together, or are not what its event committed to."""


class TreeError(TallyError):
    """The Merkle tree was asked for a leaf or size that it does not have, or a tile does not hold what it must."""


class CheckpointError(TallyError):
    """A checkpoint or its key is malformed, not signed by the trusted key, or of another log."""


class BlobShredded(BlobError):
    """A blob's subject was shredded: its commitment stands, its content is gone for good."""


class SubjectDestroyed(TallyError):
    """Something new was to be stored under a subject that was shredded."""


class RoleError(TallyError):
    """A database role may not do this, or the roles cannot be made as asked."""


class StatementTimeout(TallyError):
    """A statement ran longer than its session allows; what it was to write is not written."""


class LabelsWithheld(TallyError):
    """Something that attribution may not read was asked for by it, such as the labels of planted faults."""


class UnknownId(TallyError):
    """An id names nothing in this ledger."""


class UnknownEventKind(TallyError):
    """A stored event has a kind or a schema version that this release cannot read."""


class SchemaMismatch(TallyError):
    """The database is behind or ahead of the migrations of this release."""


class WaitTimeout(TallyError):
    """A wait ended before its condition held; it says nothing about what was written."""


class LedgerUnavailable(TallyError):
    """The database cannot be reached or refuses to write."""


class MethodError(TallyError):
    """A method's name or parameters do not fit its family."""


class UnknownFault(TallyError):
    """A kind of fault that the taxonomy does not have."""


class UpdateRefused(TallyError):
    """An update cannot be computed from what it was given, or would not be the one that was asked for."""


class AdapterError(TallyError):
    """An adapter does not fit the model or the folder that it was asked for."""


class StatisticRefused(TallyError):
    """A statistic was asked of a table that lacks a column, or whose values or parameters it cannot be taken of."""


class SandboxUnavailable(TallyError):
    """A sandbox cannot be made on this machine."""


class SandboxRefused(SandboxUnavailable):
    """Code would run without a protection that its trust requires; the message names what is missing and the setting that allows it."""


class BundleError(TallyError):
    """A task bundle lacks a part or a part has the wrong form."""


class ProposalError(TallyError):
    """No task can be proposed from what was given, or a proposal does not hold when it is acted out."""


class ModelCallFailed(TallyError):
    """A model that was asked gave no answer; its call is recorded with the reason."""


class NotRecorded(TallyError):
    """A replay asked for a model call that its record does not hold; nothing was asked of any model."""


class RolloutClosed(TallyError):
    """A rollout has ended, so nothing more may be captured under its id."""


class WorldFailed(TallyError):
    """A world broke (crash, time-out, protocol fault); the policy did nothing wrong by it."""


class VerifierFailed(TallyError):
    """A verifier broke, so it gave no verdict."""


class BackupError(TallyError):
    """A backup cannot be made, is damaged, or does not fit where it shall be restored."""


class SealRefused(TallyError):
    """Signing would contradict a checkpoint that was published, or the signing key or its state does not fit this ledger."""


class NotSealed(TallyError):
    """An event has no checkpoint yet, so nothing about it can be proved."""


class BundleRefused(TallyError):
    """A bundle that is not admitted, or that is held out, was asked for training."""


class BatchRefused(TallyError):
    """A batch would train on what it must not, or on something other than what was dispatched for it; nothing of it is recorded."""


class ProcessLost(TallyError):
    """Another process that shares an update ended, or did not answer in time."""


class TrainingBroken(TallyError):
    """Training cannot go on from what the ledger and the folder of model versions hold."""


class PolicyFolderError(TallyError):
    """A policy folder lacks a file, holds one that does not fit, or is not to be trained or served as it is."""


class TraceError(TallyError):
    """A recorded conversation cannot become a supervised row without bending it."""
