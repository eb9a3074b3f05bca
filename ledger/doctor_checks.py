"""What the doctor makes of each measurement: fine, worth a look, or broken, and what to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.measure import Order, Room, Seal, Staged
from ledger.measure_server import Connections, Facts, Indexes, Login, Session

Status = Literal["ok", "warn", "fail", "unknown"]
OLDEST_SERVER = 150000
ORDER_LAG_S = 60.0
SEAL_LAG_EVENTS = 100_000
SEAL_AGE_S = 86_400.0
MODEL_LAG_EVENTS = 100_000
MANY_HOLES = 1000
SKEW_S = 2.0
BUSY_SHARE = 0.8
LOW_DISK_BYTES, NO_DISK_BYTES = 5 * 2**30, 2**30


@dataclass(frozen=True)
class Check:
    """One finding: what was looked at, how it is, what was seen, and what to do unless it is fine."""

    name: str
    status: Status
    measured: str
    advice: str = ""


def versions(facts: Facts, software: Mapping[str, str], head: str) -> Check:
    """Whether server and schema are those that this release works with."""
    server = f"{facts.version // 10000}.{facts.version % 10000}"
    seen = ", ".join(f"{name} {value}" for name, value in software.items()) + f", PostgreSQL {server}, schema {facts.revision or 'none'}"
    if facts.version < OLDEST_SERVER:
        return Check("versions", "fail", seen, "move the database to PostgreSQL 15 or newer")
    if facts.revision is None or facts.revision < head:
        return Check("versions", "fail", f"{seen}; this release needs {head}", "run `tally migrate`")
    if facts.revision != head:
        return Check("versions", "fail", f"{seen}; this release knows up to {head}", "install a newer Tallystick")
    return Check("versions", "ok", seen)


def durability(facts: Facts) -> Check:
    """Whether a committed event survives a crash of the server."""
    names = ("fsync", "full_page_writes", "synchronous_commit", "data_checksums")
    seen = ", ".join(f"{name} {facts.settings.get(name, 'hidden')}" for name in names)
    off = [name for name in names if facts.settings.get(name) == "off"]
    for name in ("fsync", "full_page_writes"):
        if name in off:
            return Check("durability", "fail", seen, f"set {name} = on: with it off a crash loses or damages what was acknowledged")
    if "synchronous_commit" in off:
        return Check("durability", "warn", seen, "set synchronous_commit = on; our sessions ask for it themselves, others do not")
    if "data_checksums" in off:
        return Check("durability", "warn", seen, "stop the server and run pg_checksums --enable: damaged pages are not noticed otherwise")
    return Check("durability", "ok" if len(names) == sum(name in facts.settings for name in names) else "unknown", seen)


def encoding(facts: Facts) -> Check:
    """Whether all text can be stored."""
    seen = f"{facts.settings.get('server_encoding')}, time zone {facts.settings.get('TimeZone')}"
    if facts.settings.get("server_encoding") != "UTF8":
        return Check("encoding", "fail", seen, "make the database anew with ENCODING 'UTF8'")
    return Check("encoding", "ok", seen)


def writable(facts: Facts) -> Check:
    """Whether appends are accepted, and for how long a statement may run."""
    read_only, timeout = facts.settings.get("default_transaction_read_only"), facts.settings.get("statement_timeout", "0")
    standby = facts.settings.get("synchronous_standby_names") or "none"
    seen = f"read only {read_only}, synchronous standbys {standby}, statement_timeout {timeout} ms"
    if read_only == "on":
        return Check("writable", "fail", seen, "connect to the primary; this server refuses to write")
    if 0 < int(timeout) < 60_000:
        return Check("writable", "warn", seen, "raise statement_timeout for this login: verification and backups run for longer")
    return Check("writable", "ok", seen)


def clock(facts: Facts, now: datetime) -> Check:
    """Whether this machine's clock, which events carry, agrees with the server's."""
    skew = (now - facts.clock).total_seconds()
    seen = f"this machine is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} the server"
    if abs(skew) > SKEW_S:
        return Check("clock", "warn", seen, "synchronise both clocks; the order of events does not depend on them, their times do")
    return Check("clock", "ok", seen)


def connections(seen: Connections) -> Check:
    """Whether there is room for more sessions."""
    text = f"{seen.used} of {seen.most}"
    if seen.used > BUSY_SHARE * seen.most:
        return Check("connections", "warn", text, "raise max_connections, or run fewer processes or smaller pools")
    return Check("connections", "ok", text)


def sessions(seen: Sequence[Session]) -> Check:
    """Whether old transactions keep dead rows and open holes alive."""
    if not seen:
        return Check("sessions", "ok", "no transaction is open for long")
    listed = "; ".join(f"pid {s.pid} {s.application} {s.state} for {s.open_s:.0f} s" for s in seen[:5])
    return Check("sessions", "warn", f"{len(seen)} open for long: {listed}", "end them, or find out why they do not end")


def login(seen: Login) -> Check:
    """Whether this login could switch the guards off."""
    if seen.superuser:
        return Check("login", "warn", f"{seen.name} is a superuser", "work as a login that owns nothing and may only append")
    if seen.owns:
        return Check(
            "login", "warn", f"{seen.name} owns {len(seen.owns)} tables of the log", "let another login own them; this one may only append"
        )
    return Check("login", "ok", f"{seen.name} owns no table of the log")


def guards(unguarded: Sequence[str]) -> Check:
    """Whether every table of the log refuses changes."""
    if unguarded:
        listed = ", ".join(unguarded[:5])
        return Check("guards", "fail", f"{len(unguarded)} without a guard: {listed}", "find out who removed it, verify, enable the trigger")
    return Check("guards", "ok", "every table and partition of the log refuses changes")


def pages(failures: int | None) -> Check:
    """Whether the server has read damaged pages."""
    if failures is None:
        return Check("pages", "unknown", "no checksums on this server", "see durability")
    if failures:
        return Check(
            "pages", "fail", f"{failures} checksum failures", "the disk or memory is failing: back up now, then run `tally verify`"
        )
    return Check("pages", "ok", "no checksum failure")


def indexes(seen: Indexes | None) -> Check:
    """Whether every index agrees with its table."""
    if seen is None:
        return Check("indexes", "unknown", "amcheck is not installed", "as a superuser: CREATE EXTENSION amcheck")
    if seen.faults:
        return Check("indexes", "fail", "; ".join(seen.faults[:5]), "REINDEX it, then run `tally verify`")
    return Check("indexes", "ok", f"{seen.checked} agree with their tables")


def ordering(seen: Order) -> Check:
    """Whether committed events get their positions."""
    text = f"position {seen.position} after {seen.step} steps; {seen.waiting} events wait, the oldest for {seen.lag_s:.1f} s"
    if seen.lag_s > ORDER_LAG_S:
        return Check("ordering", "warn", text, "any reader orders what waits: run `tally events`; if that does not help, see sessions")
    return Check("ordering", "ok", text)


def holes(seen: Order) -> Check:
    """Whether ids that were taken and not committed pile up."""
    text = f"{seen.holes} open, {seen.dead} given up"
    if seen.holes > MANY_HOLES:
        return Check("holes", "warn", text, "long transactions keep them open (see sessions); ordering goes on meanwhile")
    return Check("holes", "ok", text)


def sealing(order: Order, seal: Seal | None) -> Check:
    """Whether what is ordered becomes provable."""
    if seal is None and order.position == 0:
        return Check("sealing", "ok", "nothing is ordered yet")
    if seal is None:
        return Check("sealing", "warn", f"no checkpoint over {order.position} events", "run `tally seal`")
    behind = order.position - seal.size
    text = f"checkpoint of {seal.size}, {behind} events behind, {seal.age_s:.0f} s old"
    if behind < 0:
        return Check("sealing", "fail", text, "a published checkpoint lies above this log: it was cut, or restored from an older copy")
    if behind > SEAL_LAG_EVENTS or (behind and seal.age_s > SEAL_AGE_S):
        return Check("sealing", "warn", text, "run `tally seal`, or see why the process that seals does not")
    return Check("sealing", "ok", text)


def read_models(order: Order, positions: Mapping[str, int]) -> Check:
    """Whether the read models keep up."""
    behind = {name: order.position - position for name, position in sorted(positions.items())}
    text = ", ".join(f"{name} {lag} behind" if lag else f"{name} up to date" for name, lag in behind.items())
    ahead = [name for name, lag in behind.items() if lag < 0]
    if ahead:
        return Check("read models", "fail", text, f"{', '.join(ahead)} saw events that are gone: verify, then rebuild them")
    if max(behind.values(), default=0) > MODEL_LAG_EVENTS:
        return Check("read models", "warn", text, "they are folded when they are read: run `tally rollouts`")
    return Check("read models", "ok", text)


def tokens(seen: Staged) -> Check:
    """Whether tokens of ended rollouts are packed."""
    text = f"{seen.rows} calls staged ({seen.bytes} bytes), {seen.ended} of them of ended rollouts"
    if seen.ended:
        return Check("tokens", "warn", text, "pack them; until then they take more room than they need")
    return Check("tokens", "ok", text)


def orphans(count: int, size: int) -> Check:
    """Whether interrupted writers left blobs behind."""
    text = f"{count} blobs ({size} bytes) that no event names"
    return Check(
        "orphan blobs", "warn" if count else "ok", text, "left by writers that were interrupted; they harm nothing" if count else ""
    )


def partitions(seen: Sequence[Room]) -> Check:
    """Whether the next partition of every table is ready."""
    text = ", ".join(f"{room.table} {room.left / room.width:.2f}" for room in seen) + " widths left"
    late = [room.table for room in seen if 2 * room.left < room.width]
    if late:
        advice = f"as the owner: SELECT extend_partitions(); {', '.join(late)} should have been extended by its writers"
        return Check("partitions", "warn", text, advice)
    return Check("partitions", "ok", text)


def disk(what: str, free: int, total: int) -> Check:
    """Whether there is room on a disk."""
    text = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    if free < NO_DISK_BYTES:
        return Check(what, "fail", text, "make room now: a full disk stops every append")
    if free < LOW_DISK_BYTES:
        return Check(what, "warn", text, "make room")
    return Check(what, "ok", text)
