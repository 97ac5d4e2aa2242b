"""Rows of the database in, summaries, comparisons and predictions out."""
