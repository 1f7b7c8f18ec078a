"""The numerics passport: what a backend's arithmetic is like, found by small experiments. Measured, never judged."""
