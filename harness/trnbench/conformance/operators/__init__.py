"""Operators of transformers, forward and backward: what each must compute, and how far a precision may be off."""
