"""Checks of what the tables say about each other: each statement returns position or null, what, and fault for a row that does not fit."""

_POSITION = "(SELECT o.position FROM event_order AS o WHERE o.id = e.id)"

TABLE_CHECKS: tuple[tuple[str, str], ...] = (
    (
        "stream",
        f"""SELECT {_POSITION}, n.name, 'version ' || e.version || ' follows ' || coalesce(e.before::text, 'nothing')
        FROM (SELECT id, stream_id, version, lag(version) OVER (PARTITION BY stream_id ORDER BY version) AS before FROM event) AS e
          LEFT JOIN stream_head AS h USING (stream_id) LEFT JOIN node AS n USING (node_id)
        WHERE e.version <> coalesce(e.before, 0) + 1""",
    ),
    (
        "stream head",
        """SELECT NULL::bigint, coalesce(n.name, e.stream_id::text), 'the head is at version ' || coalesce(h.version::text, 'none')
          || ', the newest event at ' || coalesce(e.version::text, 'none')
        FROM (SELECT * FROM stream_head WHERE version > 0) AS h
        FULL JOIN (SELECT stream_id, max(version) AS version FROM event GROUP BY 1) AS e USING (stream_id)
          LEFT JOIN node AS n USING (node_id)
        WHERE h.version IS DISTINCT FROM e.version""",
    ),
    (
        "node",
        """SELECT NULL::bigint, n.name, 'its node id does not follow from its project and name'
        FROM node AS n WHERE n.node_id <> node_of(n.project, n.name)""",
    ),
    (
        "key of event",
        f"""SELECT {_POSITION}, e.event_id, 'its idempotency key is missing or says something else'
        FROM event AS e LEFT JOIN event_key AS k USING (event_id) WHERE k.id IS DISTINCT FROM e.id""",
    ),
    (
        "key",
        """SELECT NULL::bigint, k.event_id, 'it is taken by an event that is not here'
        FROM event_key AS k WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = k.id)""",
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
        """SELECT NULL::bigint, h.stream_id, 'it belongs to ledger ' || h.ledger_id
        FROM stream_head AS h WHERE h.ledger_id <> (SELECT ledger_id FROM ledger)""",
    ),
    (
        "edge",
        """SELECT NULL::bigint, x.child || ' ' || x.relation || ' ' || x.parent, 'the event that states it is not here'
        FROM edge AS x WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = x.id)""",
    ),
    (
        "blob",
        f"""SELECT {_POSITION}, u.blob_no, 'an event uses it, and it is not here'
        FROM blob_use AS u LEFT JOIN event AS e USING (id)
        WHERE e.id IS NULL OR NOT EXISTS (SELECT FROM blob AS b WHERE b.blob_no = u.blob_no)""",
    ),
)
