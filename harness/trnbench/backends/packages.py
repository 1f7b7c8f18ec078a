"""What is installed, found without importing it: versions from package metadata, placeholders, matching pairs."""

from __future__ import annotations

import importlib.metadata
import re

PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    "torch-neuronx": ("1.0",),
    "neuronx-cc": ("1.0", "1.0.post1"),
    "libneuronxla": ("1.0",),
    "nki": ("0.0.1",),
}
"""Distributions on the public index whose only content is `raise ImportError("WRONG PACKAGE ...")`, by version."""

AWS_INDEX = "https://pip.repos.neuron.amazonaws.com"


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution from its metadata, None if absent; nothing is imported."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions(distributions: tuple[str, ...]) -> dict[str, str]:
    """Versions of those of the given distributions that are installed."""
    found = {name: installed_version(name) for name in distributions}
    return {name: version for name, version in found.items() if version is not None}


def is_placeholder(distribution: str) -> bool:
    """True where the installed distribution is the public index's empty stand-in for a package of AWS's own index."""
    return installed_version(distribution) in PLACEHOLDERS.get(distribution, ())


def release(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "2.9.0.2.15.32035+8e87" is (2, 9, 0, 2, 15, 32035); empty where there are none."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def same_minor(one: str, other: str) -> bool:
    """True where two versions share their first two numbers, as torch and torch-xla of one release do."""
    return len(release(one)) >= 2 and release(one)[:2] == release(other)[:2]
