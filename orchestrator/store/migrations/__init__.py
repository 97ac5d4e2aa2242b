"""Alembic's migrations: from every released schema to the newest one.

A fresh database comes from ``schema.sql``, which is always the newest; revision 0001 is the base.
A later revision drops the views first and creates those of its time last, and declares what it
touches itself: it must not import ``tables.py``, which moves on.
"""
