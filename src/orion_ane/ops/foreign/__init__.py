"""Rows that exist to be imported, run and lowered: importing this package fills `Op.table`."""
