"""Checks of what the tables say about each other: each statement returns event id or null, what, and fault for a row that does not fit."""

TABLE_CHECKS: tuple[tuple[str, str], ...] = (
    (
        "stream",
        """SELECT (SELECT min(v.id) FROM event AS v WHERE v.stream_id = e.stream_id AND v.version = e.version), n.name,
          'version ' || e.version || ' follows ' || coalesce(e.before::text, 'nothing')
        FROM (SELECT stream_id, version, lag(version) OVER (PARTITION BY stream_id ORDER BY version) AS before FROM event) AS e
          LEFT JOIN stream_head AS h USING (stream_id) LEFT JOIN node AS n USING (node_id)
        WHERE e.version <> coalesce(e.before, 0) + 1""",
    ),
    (
        "stream head",
        """SELECT NULL::bigint, coalesce(n.name, stream_id::text), 'the head is at version ' || coalesce(h.version::text, 'none')
          || ', the newest event at ' || coalesce(e.version::text, 'none')
        FROM (SELECT * FROM stream_head WHERE version <> 0) AS h
        FULL JOIN (SELECT stream_id, max(version) AS version FROM event GROUP BY 1) AS e USING (stream_id)
          LEFT JOIN node AS n USING (node_id)
        WHERE h.version IS DISTINCT FROM e.version""",
    ),
    (
        "stream head",
        """SELECT NULL::bigint, h.stream_id, 'it belongs to ledger ' || h.ledger_id
        FROM stream_head AS h WHERE h.ledger_id <> (SELECT ledger_id FROM ledger)""",
    ),
    (
        "node",
        """SELECT NULL::bigint, n.name, 'its node id does not follow from its project and name'
        FROM node AS n WHERE n.node_id <> node_of(n.project, n.name)""",
    ),
    (
        "node",
        """SELECT NULL::bigint, x.node_id, 'a stream or an edge starts at it, and it has no name'
        FROM (SELECT node_id FROM stream_head UNION SELECT child FROM edge) AS x (node_id)
        WHERE NOT EXISTS (SELECT FROM node AS n WHERE n.node_id = x.node_id)""",
    ),
    (
        "node",
        """SELECT NULL::bigint, n.name, 'no stream and no edge starts at it'
        FROM node AS n WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = n.node_id)
          AND NOT EXISTS (SELECT FROM edge AS x WHERE x.child = n.node_id)""",
    ),
    (
        "key of event",
        """SELECT e.id, e.event_id, 'its idempotency key is missing or says something else'
        FROM event AS e LEFT JOIN event_key AS k USING (event_id) WHERE k.id IS DISTINCT FROM e.id""",
    ),
    (
        "key",
        """SELECT NULL::bigint, k.event_id, 'it is taken by an event that is not here'
        FROM event_key AS k WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = k.id)""",
    ),
    (
        "event",
        """SELECT e.id, e.event_id, 'the ordering step has passed it over'
        FROM event AS e, (SELECT high, holes FROM order_step ORDER BY step DESC LIMIT 1) AS s
        WHERE e.id <= s.high AND e.id <> ALL (s.holes) AND NOT EXISTS (SELECT FROM event_order AS o WHERE o.id = e.id)""",
    ),
    (
        "event",
        """SELECT o.id, o.id, 'it has several positions, from ' || min(o.position) || ' to ' || max(o.position)
        FROM event_order AS o GROUP BY o.id HAVING count(*) > 1""",
    ),
    (
        "event",
        """SELECT e.id, e.event_id, 'its id is one that was never given out'
        FROM event AS e WHERE e.id > (SELECT last_value FROM event_id_seq) OR e.id < 1""",
    ),
    (
        "blob",
        """SELECT u.id, u.blob_no, 'an event uses it, and one of the two is not here'
        FROM blob_use AS u WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.id = u.id)
          OR NOT EXISTS (SELECT FROM blob AS b WHERE b.blob_no = u.blob_no)""",
    ),
    (
        "blob",
        """SELECT (SELECT min(u.id) FROM blob_use AS u WHERE u.blob_no = coalesce(b.blob_no, c.blob_no)), coalesce(b.blob_no, c.blob_no),
          'it has ' || coalesce(c.chunks, 0) || ' chunks up to number ' || coalesce(c.last, -1) || '; needed: ' || coalesce(b.chunks, 0)
        FROM blob AS b FULL JOIN
          (SELECT blob_no, count(*) AS chunks, max(chunk) AS last, min(chunk) AS first FROM blob_chunk GROUP BY 1) AS c USING (blob_no)
        WHERE b.chunks IS DISTINCT FROM c.chunks OR c.last <> c.chunks - 1 OR c.first <> 0""",
    ),
)
