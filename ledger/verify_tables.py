"""Checks of what the tables say about each other: each statement returns position or null, what, and fault for a row that does not fit."""

_POSITION = "(SELECT o.position FROM event_order AS o WHERE o.id = e.id)"

TABLE_CHECKS: tuple[tuple[str, str], ...] = (
    (
        "stream",
        f"""SELECT {_POSITION}, e.stream, 'version ' || e.version || ' follows ' || coalesce(e.before::text, 'nothing')
        FROM (SELECT id, stream, version, lag(version) OVER (PARTITION BY ledger_id, project, stream ORDER BY version) AS before
              FROM event) AS e
        WHERE e.version <> coalesce(e.before, 0) + 1""",
    ),
    (
        "stream head",
        """SELECT NULL::bigint, coalesce(h.stream, e.stream), 'the head is at version ' || coalesce(h.version::text, 'none')
          || ', the newest event at ' || coalesce(e.version::text, 'none')
        FROM (SELECT * FROM stream_head WHERE version > 0) AS h
        FULL JOIN (SELECT ledger_id, project, stream, max(version) AS version FROM event GROUP BY 1, 2, 3) AS e
          ON e.ledger_id = h.ledger_id AND e.project = h.project AND e.stream = h.stream
        WHERE h.version IS DISTINCT FROM e.version""",
    ),
    (
        "key of event",
        f"""SELECT {_POSITION}, e.event_id, 'its idempotency key is missing or says something else'
        FROM event AS e LEFT JOIN event_key AS k
          ON k.ledger_id = e.ledger_id AND k.project = e.project AND k.stream = e.stream AND k.key = e.key
        WHERE (k.event_id, k.version, k.kind, k.schema_version, k.body_hash)
          IS DISTINCT FROM (e.event_id, e.version, e.kind, e.schema_version, e.body_hash)""",
    ),
    (
        "key",
        """SELECT NULL::bigint, k.stream || ' ' || k.key, 'it is taken by event ' || k.event_id || ', which is not here'
        FROM event_key AS k WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.event_id = k.event_id)""",
    ),
    (
        "position",
        """SELECT position, position, 'it follows ' || coalesce(before::text, 'nothing')
        FROM (SELECT position, lag(position) OVER (ORDER BY position) AS before FROM event_order) AS o
        WHERE position <> coalesce(before, 0) + 1""",
    ),
    (
        "position",
        """SELECT o.position, o.position, 'its event is not here'
        FROM event_order AS o WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = o.id)""",
    ),
    (
        "event",
        """SELECT NULL::bigint, e.event_id, 'the ordering step has passed it over'
        FROM event AS e, (SELECT high, holes FROM order_step ORDER BY step DESC LIMIT 1) AS s
        WHERE e.id <= s.high AND e.id <> ALL (s.holes) AND NOT EXISTS (SELECT FROM event_order AS o WHERE o.id = e.id)""",
    ),
    (
        "ordering step",
        """SELECT NULL::bigint, s.step, 'it says that ' || s.position || ' events are ordered; there are ' || n.ordered
        FROM (SELECT step, position FROM order_step ORDER BY step DESC LIMIT 1) AS s, (SELECT count(*) AS ordered FROM event_order) AS n
        WHERE s.position <> n.ordered""",
    ),
    (
        "event",
        f"""SELECT {_POSITION}, e.event_id, 'it belongs to ledger ' || e.ledger_id
        FROM event AS e WHERE e.ledger_id <> (SELECT ledger_id FROM ledger)""",
    ),
    (
        "edge",
        """SELECT NULL::bigint, x.child || ' ' || x.relation || ' ' || x.parent, 'event ' || x.event_id || ', which states it, is not here'
        FROM edge AS x WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.event_id = x.event_id)""",
    ),
    (
        "blob",
        f"""SELECT {_POSITION}, encode(u.blob_id, 'hex'), 'an event names it, and it is not here'
        FROM blob_use AS u LEFT JOIN event AS e USING (event_id)
        WHERE e.event_id IS NULL OR NOT EXISTS (SELECT FROM blob AS b WHERE b.blob_id = u.blob_id)""",
    ),
)
