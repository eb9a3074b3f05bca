"""Pieces that pages are made of; each shows foreign text as text and never as markup."""
