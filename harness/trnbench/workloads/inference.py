"""Prefill and decode steps with greedy sampling over a static key-value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.status import CaseError, Status
from trnbench.workloads.data import token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.program import Compile, Materialize, Program, batch_items, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trnbench.case import Case
    from trnbench.workloads.decoder import Cache, Decoder
    from trnbench.workloads.presets import Preset

PREPARED_PROMPTS = 4
"""Prompt batches that lie on the device before timing; prefill steps take them in turn."""


def prefill_step(model: Decoder, tokens: Tensor, lengths: Tensor, first: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
    """Prompts [B, T] of `lengths` [B], opening with token `first` [B] -> next token [B], logits [B, vocab_size].

    `first` takes the place of each prompt's first token: it is what ties one step to the one before it.
    """
    logits = model.prefill(torch.cat((first[:, None], tokens[:, 1:]), dim=1), lengths, cache)
    return logits.argmax(-1), logits


def decode_step(model: Decoder, tokens: Tensor, positions: Tensor, cache: Cache) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [B] at `positions` [B] -> next token [B], next positions [B], logits [B, vocab_size]."""
    logits = model.decode(tokens, positions, cache)
    return logits.argmax(-1), positions + 1, logits


class _InferenceProgram(Program):
    """What prefill and decode share: a model without gradients, a cache, and outputs (next token, logits)."""

    def __init__(self, case: Case, preset: Preset, device: torch.device, compiler: Compile, seed: int) -> None:
        super().__init__(case, preset)
        slots = case.sequence + case.new_tokens
        self.model = build_model(preset, case.precision, device, seed, inference=True, positions=slots)
        self.cache = self.model.new_cache(case.batch, slots)

        def run_prefill(tokens: Tensor, lengths: Tensor, first: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
            return prefill_step(self.model, tokens, lengths, first, cache)

        self._prefill = compiler(run_prefill, case.mode)

    def loss_like(self, outputs: Sequence[Tensor]) -> Tensor:
        """The largest absolute logit; NaN and infinity survive the maximum."""
        # Not amax(): without dimensions torch-xla 2.9 leaves it unreduced.
        return outputs[1].abs().max()


class PrefillProgram(_InferenceProgram):
    """Each step reads a batch of prompts whose first tokens are those that the step before produced."""

    def __init__(self, case: Case, preset: Preset, device: torch.device, compiler: Compile, seed: int) -> None:
        super().__init__(case, preset, device, compiler, seed)
        self._prompts = [
            token_batch(preset.vocab_size, case.batch, case.sequence, seed + index) for index in range(PREPARED_PROMPTS)
        ]
        self._on_device = [
            (torch.from_numpy(prompt.tokens).to(device), torch.from_numpy(prompt.lengths).to(device))
            for prompt in self._prompts
        ]
        self._first = self._on_device[0][0][:, 0].clone()
        self._logits: Tensor | None = None
        self._steps = 0

    def reset(self) -> None:
        """Nothing to put back: a prefill overwrites the cache from slot 0."""

    @torch.no_grad()
    def step(self) -> list[Tensor]:
        """Outputs: next token [B], logits [B, vocab_size] and the last layer's cached values, written beside them."""
        tokens, lengths = self._on_device[self._steps % PREPARED_PROMPTS]
        self._steps += 1
        self._first, self._logits = self._prefill(tokens, lengths, self._first, self.cache)
        return [self._first, self._logits, self.cache[-1][1]]

    def items(self) -> dict[str, int]:
        return batch_items(self._prompts[self._steps % PREPARED_PROMPTS])

    def state_fingerprint(self) -> str:
        return fingerprint([self._first] if self._logits is None else [self._first, self._logits])


class DecodeProgram(_InferenceProgram):
    """Each step produces one token for every sequence, each at its own position, from the token before it."""

    def __init__(self, case: Case, preset: Preset, device: torch.device, compiler: Compile, seed: int) -> None:
        super().__init__(case, preset, device, compiler, seed)
        prompt = token_batch(preset.vocab_size, case.batch, case.sequence, seed)
        self._prompt = torch.from_numpy(prompt.tokens).to(device)
        self._lengths = torch.from_numpy(prompt.lengths).to(device)
        self._opening = self._prompt[:, 0].clone()

        def run_decode(tokens: Tensor, positions: Tensor, cache: Cache) -> tuple[Tensor, Tensor, Tensor]:
            return decode_step(self.model, tokens, positions, cache)

        self._decode = compiler(run_decode, case.mode)
        self._fill_cache()

    @torch.no_grad()
    def _fill_cache(self) -> None:
        self._first_token, self._logits = self._prefill(self._prompt, self._lengths, self._opening, self.cache)
        self._rewind()

    def _rewind(self) -> None:
        # Slots after a prompt still hold tokens of the last pass: each is hidden until it is written again.
        self._tokens, self._positions, self._produced = self._first_token, self._lengths, 0

    def reset(self) -> None:
        """Go back to the end of the prompts once every free slot of the cache is used."""
        if self._produced == self.case.new_tokens:
            self._rewind()

    @torch.no_grad()
    def step(self) -> list[Tensor]:
        """Outputs: next token [B] and logits [B, vocab_size]. Raises `CaseError` where `reset` was forgotten."""
        if self._produced == self.case.new_tokens:
            raise CaseError(
                Status.INVALID, f"all {self._produced} new slots of the cache are used; reset() must come before step()"
            )
        self._produced += 1
        self._tokens, self._positions, self._logits = self._decode(self._tokens, self._positions, self.cache)
        return [self._tokens, self._logits]

    def items(self) -> dict[str, int]:
        """One new token for every sequence of the cache; nothing is padded."""
        sequences = int(self._tokens.shape[0])
        return {"tokens": sequences, "padded_tokens": sequences, "sequences": sequences}

    def state_fingerprint(self) -> str:
        return fingerprint([self._tokens, self._positions, self._logits])

    def time_to_first_token(self, materialize: Materialize) -> Callable[[], None] | None:
        """Prefill of all prompts to their first tokens; leaves the program at the end of the prompts."""

        def first_token() -> None:
            self._fill_cache()
            materialize([self._first_token])

        return first_token
