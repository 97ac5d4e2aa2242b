"""A sweep file in, typed cells out. Pure: no database, no process, no torch."""
