"""Implementations broken on purpose, and correct ones in other orders: they test the checks themselves."""
