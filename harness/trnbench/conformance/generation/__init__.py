"""Generation: the same text to the same tokens, or else a reason; measured on a fixed text with the cache in use."""
