"""Rows and answers in, text or files out."""
