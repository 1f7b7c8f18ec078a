"""The fixed text that generation is checked on, and its tokens: none of it can be downloaded or change."""

from __future__ import annotations

import torch
from torch import Tensor

from trnbench.workloads.data import token_batch
from trnbench.workloads.weights import SMOLLM2_PRESET

TEXT = (
    "A bridge carries two kinds of load. The first is its own weight, which never changes, and the second is the "
    "traffic that crosses it, which changes all day. Engineers add both, then multiply the sum by a factor of safety, "
    "because steel rusts, trucks are heavier than promised, and the wind does not read the plans. A bridge that stands "
    "for a hundred years was not designed for an average day. It was designed for the worst one, and then for "
    "something a little worse than that."
)
"""Written for this check."""

SMOLLM2_TOKENS: tuple[int, ...] = (
    *(49, 7395, 11046, 827, 5479, 282, 3509, 30, 378, 808, 314, 624, 1038, 2613, 28, 527, 2093, 1971, 28, 284, 260),
    *(1796, 314, 260, 5442, 338, 21973, 357, 28, 527, 1971, 511, 1194, 30, 18378, 803, 1062, 28, 965, 17109, 260, 2028),
    *(411, 253, 4186, 282, 2950, 28, 975, 6752, 15744, 99, 28, 16110, 359, 17551, 670, 13145, 28, 284, 260, 2251, 1072),
    *(441, 1012, 260, 4406, 30, 330, 7395, 338, 6443, 327, 253, 3822, 929, 436, 441, 2724, 327, 354, 3049, 1194, 30),
    *(657, 436, 2724, 327, 260, 9250, 582, 28, 284, 965, 327, 1488, 253, 1838, 6672, 670, 338, 30),
)
"""`TEXT` in the vocabulary of SmolLM2, by the tokenizer inside its own weight file."""

PROMPTS = 4
PROMPT_TOKENS = 16
NEW_TOKENS = 32

SEED = 20_262
"""Of the token sequence that stands for the text where a preset has random weights and no vocabulary of words."""


def text_tokens(preset_name: str, vocab_size: int) -> Tensor:
    """int64 [1, T]: the fixed text for the model with real weights, else as many tokens from a fixed seed."""
    if preset_name == SMOLLM2_PRESET:
        return torch.tensor([SMOLLM2_TOKENS])
    batch = token_batch(vocab_size, 1, len(SMOLLM2_TOKENS), SEED)
    return torch.from_numpy(batch.tokens)


def prompts(text: Tensor) -> Tensor:
    """int64 [PROMPTS, PROMPT_TOKENS]: windows of the text, evenly spaced."""
    stride = (text.shape[1] - PROMPT_TOKENS) // (PROMPTS - 1)
    return torch.stack([text[0, start : start + PROMPT_TOKENS] for start in range(0, PROMPTS * stride, stride)])
