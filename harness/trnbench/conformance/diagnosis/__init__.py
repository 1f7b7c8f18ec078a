"""What a failure looks like: hypotheses about the fault, emulated on the same inputs, and the engine that chooses."""
