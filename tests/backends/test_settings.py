"""Flags that may be published: by allow-list, and never a path, a host or a user."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.backends import settings
from trnbench.backends.settings import (
    COMMON_VARIABLES,
    XLA_VARIABLES,
    environment_flags,
    publishable,
    refuse_deprecated,
)
from trnbench.status import UsageError

SECRETS = {"HOME": "/home/someone", "USER": "someone", "LOGNAME": "someone"}


@pytest.fixture
def _somebodys_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-box.example.net")


@pytest.mark.usefixtures("_somebodys_machine")
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("--xla_dump_to=/home/someone/x --xla_fast=false", "--xla_dump_to=<left out> --xla_fast=false"),
        ("--cache_dir /tmp/cache -O2", "--cache_dir <left out> -O2"),
        ("~/cache", "<left out>"),
        ("C:\\Users\\someone", "<left out>"),
        ("s3://bucket/neuron", "<left out>"),
        ("tag=Someone-run-7", "tag=<left out>"),
        ("secret-box:8080", "<left out>"),
        ("someone@example.net", "<left out>"),
        ("expandable_segments:True,max_split_size_mb:64", "expandable_segments:True,max_split_size_mb:64"),
        ("--auto-cast=none --model-type transformer", "--auto-cast=none --model-type transformer"),
        ("4", "4"),
        ("", ""),
    ],
)
def test_values_keep_switches_and_lose_names(value: str, kept: str) -> None:
    """D19: with HOME=/home/someone on host secret-box, neither is left in any value."""
    assert publishable(value) == kept


@pytest.mark.usefixtures("_somebodys_machine")
def test_only_listed_variables() -> None:
    """D19: anything not on the list does not exist for a record."""
    environment = {
        **SECRETS,
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "OMP_NUM_THREADS": "4",
        "TORCHINDUCTOR_CACHE_DIR": "/home/someone/cache",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "PJRT_DEVICE": "CPU",
    }
    assert environment_flags((*COMMON_VARIABLES, *XLA_VARIABLES), environment) == {
        "OMP_NUM_THREADS": "4",
        "PJRT_DEVICE": "CPU",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    }
    assert environment_flags(("PJRT_DEVICE",), environment) == {"PJRT_DEVICE": "CPU"}


@given(st.text(), st.sampled_from(["/", "\\", "~", "@"]), st.text())
def test_no_part_with_a_path_survives(before: str, separator: str, after: str) -> None:
    assert separator not in publishable(before + separator + after)


@given(st.text(), st.text(alphabet=" ,;=:-"))
def test_home_and_host_never_survive(text: str, glue: str) -> None:
    for secret in (str(Path.home()), socket.gethostname()):
        if len(secret) >= 4:
            assert secret.lower() not in publishable(f"{text}{glue}{secret}{glue}{text}").lower()


@given(st.lists(st.from_regex(r"--[a-z]{1,3}=[0-9]{1,4}", fullmatch=True)))
def test_plain_switches_stay_as_they_are(options: list[str]) -> None:
    assert publishable(" ".join(options)) == " ".join(options)


@pytest.mark.parametrize("name", settings.DEPRECATED)
def test_deprecated_switches_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='1' is set"):
        refuse_deprecated({name: "1"})
    refuse_deprecated({})


def test_deprecated_switches_that_are_off_pass() -> None:
    refuse_deprecated({"XLA_USE_BF16": "0", "XLA_DOWNCAST_BF16": ""})
    with pytest.raises(UsageError, match="NVIDIA_TF32_OVERRIDE='0'"):
        refuse_deprecated({"NVIDIA_TF32_OVERRIDE": "0"})
