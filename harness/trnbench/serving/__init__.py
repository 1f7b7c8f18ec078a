"""Serving: token generation and scoring under the arrival patterns of the real LoadGen."""
