"""Fixtures of a real vLLM server."""
