"""Training to a stated quality: runs from several seeds, their logs, their score, and what they must keep to."""
