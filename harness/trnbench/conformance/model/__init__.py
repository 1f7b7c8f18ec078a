"""Checks of a whole model: logits, loss, gradients, one optimizer step, against a measured noise floor."""
