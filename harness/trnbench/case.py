"""A case: everything that two measurements must share before their speeds may be compared."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from trnbench.status import CaseError, Status, UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Phase = Literal[
    "train_step",
    "prefill",
    "decode",
    "serving",
    "scoring",
    "pretrain",
    "finetune_lora",
    "formats",
    "operators",
    "model",
    "learning",
    "generation",
]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Mode = Literal["eager", "compiled"]
Tier = Literal["smoke", "single", "node", "fleet"]
Tuning = Literal["stock", "vendor", "hand"]
CachePolicy = Literal["warm", "cold"]
Scenario = Literal["", "single_stream", "multi_stream", "offline", "server", "interactive"]
Profile = Literal["", "quick", "full"]

PHASES: tuple[str, ...] = get_args(Phase)
CHECK_PHASES: tuple[str, ...] = ("formats", "operators", "model", "learning", "generation")
"""Levels of conformance: cases that are checked and not measured."""

SERVING_PHASES: tuple[str, ...] = ("serving", "scoring")
"""Requests that arrive by a scenario: answered with generated tokens, or with the prefill's one prediction."""

QUALITY_PHASES: tuple[str, ...] = ("pretrain", "finetune_lora")
"""Training until a stated quality is reached, from several seeds."""

ACCUMULATING_PHASES: tuple[str, ...] = ("train_step", "model", *QUALITY_PHASES)
"""Phases in which `batch` may be made of several micro-batches."""

SHAPELESS_PHASES: tuple[str, ...] = ("formats", "operators")
"""Their checks have shapes of their own each; batch, micro_batch and sequence of such a case are 0."""

PRECISIONS: tuple[str, ...] = get_args(Precision)
MODES: tuple[str, ...] = get_args(Mode)
TIERS: tuple[str, ...] = get_args(Tier)
SCENARIOS: tuple[str, ...] = get_args(Scenario)
PROFILES: tuple[str, ...] = get_args(Profile)


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pytest item. Two records compare only if the whole case is equal, save for the axis a comparison names.

    `batch` is the global batch in sequences; gradients accumulate over `batch / micro_batch` micro-batches.
    `sequence` is the padded length in tokens: of a training sequence, of a prompt (prefill), or of the prompt that
    fills the cache before decoding. `new_tokens` (decode only) is how many cache slots follow the prompt. `cache`
    says whether the host's and device's data caches are left warm between rounds or flushed. `parallel` maps an
    axis of the parallel plan (dp, tp, pp) to its degree. `version` is a hash of the workload's code and preset.

    Phases of `SERVING_PHASES` have a `scenario`, which says how requests arrive, and a `profile`, which says how many
    and for how long. In serving `batch` is how many sequences are decoded at once, `sequence` the longest prompt and
    `new_tokens` the most tokens of an answer; in scoring `batch` is the most prompts of one prefill.

    Phases of `CHECK_PHASES` are levels of conformance, which measure nothing; `workload` is then a group of formats, a
    family of operators, or a preset.
    """

    suite: str
    workload: str
    phase: Phase
    precision: Precision
    batch: int
    sequence: int
    tier: Tier
    mode: Mode
    micro_batch: int
    new_tokens: int = 0
    cache: CachePolicy = "warm"
    tuning: Tuning = "stock"
    parallel: dict[str, int] = {}
    version: str = ""
    scenario: Scenario = ""
    profile: Profile = ""

    def __post_init__(self) -> None:
        self._check_shape()
        self._check_scenario()
        if self.phase not in ACCUMULATING_PHASES and self.batch != self.micro_batch:
            raise UsageError(f"case {self.workload}: {self.phase} accumulates nothing; micro_batch must equal batch")
        if (self.phase in ("decode", "serving")) != (self.new_tokens > 0):
            raise UsageError(
                f"case {self.workload}: new_tokens is {self.new_tokens}; it must be positive for decode and serving, "
                f"and left out for {self.phase}"
                if self.new_tokens
                else f"case {self.workload}: new_tokens must be positive for {self.phase}"
            )

    def _check_shape(self) -> None:
        shapeless = self.phase in SHAPELESS_PHASES
        for name in ("batch", "sequence", "micro_batch"):
            value = getattr(self, name)
            if shapeless and value != 0:
                raise UsageError(f"case {self.workload}: {name} is {value}; phase {self.phase} has none, leave it out")
            if not shapeless and value < 1:
                raise UsageError(f"case {self.workload}: {name} is {value}; it must be at least 1")
        if not shapeless and self.batch % self.micro_batch:
            raise UsageError(
                f"case {self.workload}: batch {self.batch} is not a multiple of micro_batch {self.micro_batch}"
            )

    def _check_scenario(self) -> None:
        served = self.phase in SERVING_PHASES
        for name in ("scenario", "profile"):
            value = getattr(self, name)
            if served and not value:
                raise UsageError(f"case {self.workload}: phase {self.phase} needs a {name}")
            if not served and value:
                raise UsageError(
                    f"case {self.workload}: {name} is {value!r}; phase {self.phase} has none, leave it out"
                )
        if self.scenario == "multi_stream" and self.phase != "scoring":
            raise UsageError(f"case {self.workload}: multi_stream is answered by scoring, not by {self.phase}")
        if self.scenario == "interactive" and self.phase != "serving":
            raise UsageError(f"case {self.workload}: interactive has limits on tokens, which {self.phase} has not")
        if self.phase == "serving" and self.new_tokens == 1:
            raise UsageError(f"case {self.workload}: new_tokens is 1; time per output token needs at least 2")

    @property
    def checks_only(self) -> bool:
        """Whether the case is checked and not measured: it then has no rounds and no speed."""
        return self.phase in CHECK_PHASES

    @property
    def id(self) -> str:
        """Readable, unique within a suite, safe in a file name: `nano-train_step-bf16-compiled-b8-s256`."""
        parts = [self.workload, self.phase, *([self.scenario] if self.scenario else []), self.precision, self.mode]
        if self.batch:
            parts += [f"b{self.batch}", f"s{self.sequence}"]
        if self.micro_batch != self.batch:
            parts.append(f"m{self.micro_batch}")
        if self.new_tokens:
            parts.append(f"n{self.new_tokens}")
        if self.cache != "warm":
            parts.append(self.cache)
        if self.checks_only and self.tier != "smoke":
            # The tier decides how much is tried, and nothing else tells such cases apart.
            parts.append(self.tier)
        if self.profile:
            parts.append(self.profile)
        if self.tuning != "stock":
            parts.append(self.tuning)
        parts += [f"{axis}{degree}" for axis, degree in sorted(self.parallel.items())]
        return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))

    @property
    def accumulation(self) -> int:
        """Micro-batches per optimizer step."""
        return self.batch // self.micro_batch if self.micro_batch else 0

    @property
    def devices_needed(self) -> int:
        """Devices the parallel plan asks for; 1 without a plan."""
        needed = 1
        for degree in self.parallel.values():
            needed *= degree
        return needed

    def require_one_device(self) -> None:
        """Raise `CaseError` (unsupported) for a parallel plan: who ignored it would measure another case."""
        if self.devices_needed > 1:
            raise CaseError(
                Status.UNSUPPORTED,
                f"case {self.id}: this workload runs on one device; its parallel plan asks for {self.devices_needed}",
            )

    def identity(self, without: Iterable[str] = ()) -> tuple[tuple[str, object], ...]:
        """The case as a hashable key, leaving out the fields a comparison declares as its axis."""
        left_out = set(without)
        unknown = left_out - set(self.__struct_fields__)
        if unknown:
            raise UsageError(f"a case has no field {sorted(unknown)}; its fields are {list(self.__struct_fields__)}")
        return tuple(
            (name, tuple(sorted(value.items())) if isinstance(value := getattr(self, name), dict) else value)
            for name in self.__struct_fields__
            if name not in left_out
        )


def grid(**fields: object) -> list[Case]:
    """Every combination of the given fields; a list or tuple is an axis, anything else is the same in all cases.

    A field that a case does not have, or a value of the wrong type, raises `UsageError` naming the nearest field.
    """
    axes = {name: value if isinstance(value, list | tuple) else [value] for name, value in fields.items()}
    return [case_from(dict(zip(axes, combination, strict=True))) for combination in itertools.product(*axes.values())]


def case_from(fields: Mapping[str, object]) -> Case:
    """Build and check one case from plain values, as read from a suite or a file.

    `micro_batch` defaults to `batch`, and all shapes to 0 in phases that have none. Raises `UsageError` with the
    field's name and what would be right.
    """
    known = Case.__struct_fields__
    for name in fields:
        if name not in known:
            hint = nearest(name, known, f"the fields are {', '.join(known)}")
            raise UsageError(f"a case has no field {name!r}; {hint}")
    shapeless = {"batch": 0, "sequence": 0} if fields.get("phase") in SHAPELESS_PHASES else {}
    given = {**shapeless, **fields}
    complete = {"micro_batch": given.get("batch"), **given}
    try:
        return msgspec.convert(complete, Case, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"case {fields.get('workload', '?')}: {error}") from None
