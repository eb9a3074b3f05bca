"""The ledger: append-only events, blobs, order, projections and lineage over PostgreSQL."""
