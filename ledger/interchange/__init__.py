"""Formats in which events leave this ledger and come in, one file a format."""
