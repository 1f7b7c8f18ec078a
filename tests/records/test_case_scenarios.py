"""Cases of serving and of training to a quality: what they must name, and what no other case may."""

from __future__ import annotations

import pytest
from record_samples import case

from trnbench.status import UsageError

SERVED = {"phase": "serving", "scenario": "offline", "profile": "quick", "new_tokens": 8}


def test_scenario_and_profile_are_part_of_the_identity_and_of_the_name() -> None:
    one, other = case(**SERVED), case(**{**SERVED, "scenario": "server"})
    longer = case(**{**SERVED, "profile": "full"})
    assert len({one.identity(), other.identity(), longer.identity()}) == 3
    assert one.id == "nano-serving-offline-bf16-eager-b4-s64-n8-quick"
    assert len({one.id, other.id, longer.id}) == 3


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({**SERVED, "scenario": ""}, "needs a scenario"),
        ({**SERVED, "profile": ""}, "needs a profile"),
        ({"scenario": "offline"}, "scenario is 'offline'; phase train_step has none"),
        ({"profile": "quick"}, "profile is 'quick'; phase train_step has none"),
        ({**SERVED, "new_tokens": 0}, "new_tokens must be positive for serving"),
        ({**SERVED, "new_tokens": 1}, "needs at least 2"),
        ({**SERVED, "phase": "scoring"}, "left out for scoring"),
        ({**SERVED, "scenario": "multi_stream"}, "answered by scoring"),
        ({**SERVED, "phase": "scoring", "scenario": "interactive", "new_tokens": 0}, "limits on tokens"),
        ({**SERVED, "micro_batch": 2}, "serving accumulates nothing"),
        ({**SERVED, "scenario": "offlin"}, "scenario"),
    ],
)
def test_a_case_that_contradicts_itself_is_refused(changes: dict[str, object], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        case(**changes)


@pytest.mark.parametrize("phase", ["train_step", "model", "pretrain", "finetune_lora"])
def test_these_phases_accumulate_gradients(phase: str) -> None:
    assert case(phase=phase, batch=8, micro_batch=2).accumulation == 4
