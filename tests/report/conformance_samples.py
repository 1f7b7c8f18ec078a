"""Conformance for tests of the site: checked cases with every verdict, passports, a mutation report and deviations."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from site_samples import START, sample_case, sample_check, sample_device, sample_environment, sample_record, write_all

from trnbench.records.mutation import MUTATION_VERSION, MutantResult, MutationReport, write_mutation_report
from trnbench.records.passport import PASSPORT_VERSION, Passport, PassportStore, Probe
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.schema import Check, Record

DEVIATIONS = """
[[deviation]]
id = "embedding-gradient"
checks = ["operators/embedding/backward/*"]
looks_like = ["bf16 accumulator*"]
precision = ["bf16"]
packages = { torch = ">=2.9" }
reason = "Rows of one token are added in the gradient's own dtype."
link = "https://example.org/issues/1?a=1&b=2"
reproduction = '''
import torch
weight = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
print(weight)  # <b>not markup</b>
'''
expires = 2027-06-30

[[deviation]]
id = "never-seen"
checks = ["operators/nothing/*"]
reason = "Nobody has seen it yet."
link = "javascript:alert(1)"
reproduction = "print(1)"
expires = 2026-01-01
"""


def check_case(workload: str = "products", phase: str = "operators", **changes: Any) -> Case:
    """A case that is only checked."""
    shape = {"batch": 2, "sequence": 64} if phase not in ("operators", "formats") else {"batch": 0, "sequence": 0}
    fields = {
        "suite": "conformance",
        "tier": "smoke",
        "mode": "eager",
        "precision": "fp32",
        "micro_batch": shape["batch"],
    }
    return sample_case(**{**fields, **shape, "workload": workload, "phase": phase, **changes})


def operator_check(name: str, verdict: str = "pass", **changes: Any) -> Check:
    """A check of an operator, its value on the side of the limit that its verdict asks for."""
    value = {"pass": 0.25, "unexpected pass": 0.25}.get(verdict, 7.5)
    fields = {"level": "operators", "tier": "T1", "verdict": verdict, **changes}
    if verdict in ("non-finite", "not checked"):
        value = None
    return sample_check(f"operators/{name}", value, **fields)


def checked_record(
    case: Case, checks: list[Check], *, run: str = "conformance-1", minute: int = 0, **changes: Any
) -> Record:
    """A record of a checked case: nonconformant where a check failed, with every null explained."""
    kind = changes.pop("kind", "cpu")
    failed = [check for check in checks if check.verdict in ("fail", "non-finite")]
    fields: dict[str, Any] = {"status": Status.OK, "reason": ""}
    if failed:
        fields = {"status": Status.NONCONFORMANT, "reason": f"{failed[0].check} fails"}
    return sample_record(
        kind,
        run=run,
        rate=None,
        case=case,
        started=changes.pop("started", START) + timedelta(minutes=minute),
        conformance=checks,
        **{**fields, **changes},
    )


def conformance_records() -> list[Record]:
    """Every verdict at least once, every level, two modes, an older attempt, an older stack and a case never run."""
    like = "bf16 accumulator in the gradient"
    many = [
        operator_check(f"{operator}/{direction}/{name}")
        for operator in ("matmul", "linear", "batched matmul")
        for direction in ("forward", "backward")
        for name in ("gaussian", "wide range", "cancelling", "subnormal", "outlier channels")
    ]
    where = "worst at [3, 17] of a product with 4096 terms, seed 0"
    failed = [
        operator_check("matmul/forward/huge", "fail", looks_like="TF32 operands", where=where, tier="T2"),
        operator_check("linear/forward/huge", "non-finite", looks_like="overflow inside the accumulator", tier="T0"),
    ]
    known = [
        operator_check(
            f"embedding/backward/{name}",
            "known deviation",
            looks_like=like,
            deviation="embedding-gradient",
            where=where,
        )
        for name in ("repeated indices", "one token only")
    ]
    unlisted = operator_check(
        "scatter/forward/repeated", "known deviation", looks_like=like, deviation="no-text-at-hand"
    )
    passed = operator_check("embedding/backward/once", "unexpected pass", deviation="embedding-gradient")
    absent = operator_check("top-k/forward/ties", "not checked", where="the device has no such operator")
    reported = sample_check(
        "model/AWS error ratio", 3.1, limit=1.2, verdict="reported", metric="error norm over the CPU's"
    )
    failed_once = operator_check("matmul/forward/old", "fail", looks_like="superseded")
    listed_once = operator_check("matmul/forward/older", "known deviation", deviation="gone-since")
    older = sample_environment("cpu", versions={"torch": "2.12.0", "python": "3.12.4"}, fingerprint="0" * 16)
    return [
        checked_record(check_case(), [failed_once, listed_once], minute=0),
        checked_record(check_case(version="f" * 16), [*many, *failed, absent], run="conformance-2", minute=20),
        checked_record(check_case(precision="bf16"), many, minute=1),
        checked_record(check_case("indexing", precision="bf16"), [*known, unlisted, *many[:3]], minute=2),
        checked_record(check_case("indexing", mode="compiled", precision="bf16"), [passed, *many[:2]], minute=3),
        checked_record(
            check_case("casts", "formats"), [sample_check("formats/e4m3fn/to bits", 0.0, level="formats")], minute=4
        ),
        checked_record(check_case("nano", "model"), [sample_check("model/logits"), reported], minute=5),
        checked_record(check_case("nano", "learning"), [sample_check("learning/falls", level="learning")], minute=6),
        sample_record(
            "cpu",
            run="conformance-1",
            rate=None,
            case=check_case("nano", "generation"),
            started=START + timedelta(minutes=7),
            status=Status.TIMEOUT,
            reason="no answer within 300 s",
        ),
        checked_record(
            check_case(),
            [*many[:4], failed_once],
            run="conformance-0",
            started=START - timedelta(days=9),
            environment=older,
        ),
        checked_record(check_case(), many[:5], run="conformance-3", kind="h100", minute=9),
    ]


def sample_passport(backend: str = "cpu", mode: str = "eager", number: int = 0, **changes: Any) -> Passport:
    """A passport with three groups of probes; `verdicts` replaces what was found, by property."""
    verdicts = {"fp32 bits": "24 bits", "order": "pairwise", **changes.pop("verdicts", {})}
    probes = [
        Probe(group="matrix product", name="operand bits", precision="fp32", verdict=verdicts["fp32 bits"]),
        Probe(
            group="matrix product",
            name="operand bits",
            precision="bf16",
            verdict="8 bits",
            details={"left": 8, "inf": "inf"},
        ),
        Probe(group="matrix product", name="operand bits", precision="tf32", verdict=None),
        Probe(
            group="accumulation order",
            name="sum <of> rows",
            precision="fp32",
            verdict=verdicts["order"],
            details={"block": 16},
        ),
        *(
            Probe(group="casts", name=f"fp32 to {name}", precision=name, verdict="nearest, ties to even")
            for name in ("bf16", "fp16", "e4m3fn", "e5m2", "e4m3fnuz")
        ),
        *changes.pop("more", []),
    ]
    device = changes.pop("device", None) or sample_device("cpu", backend=backend)
    started = START + timedelta(minutes=number)
    reasons = {
        f"device.{name}": "not on a cloud instance"
        for name in ("memory_bytes", "instance_type", "region")
        if getattr(device, name) is None
    }
    reasons |= {
        f"probes[{place}].verdict": f"{probe.precision} is not computed here"
        for place, probe in enumerate(probes)
        if probe.verdict is None
    }
    environment = changes.pop("environment", None) or sample_environment("cpu", fingerprint=f"{backend:0<16}"[:16])
    fields: dict[str, Any] = {
        "schema_version": PASSPORT_VERSION,
        "passport_id": f"passport{number:04d}",
        "started_at": started.isoformat().replace("+00:00", "Z"),
        "finished_at": (started + timedelta(seconds=41)).isoformat().replace("+00:00", "Z"),
        "device": device,
        "environment": environment,
        "mode": mode,
        "numerics": {"fp32": {"allow_tf32": False, "threads": 2}, "tf32": {"allow_tf32": True, "threads": 2}},
        "simulated": False,
        "probes": probes,
        "unknown": {"environment.git.diff_hash": "the checkout is clean", **reasons},
    }
    return Passport(**{**fields, **changes})


def sample_passports() -> list[Passport]:
    """Two modes of the CPU, a former stack, another backend that differs in two properties, and an older attempt."""
    former = sample_environment("cpu", versions={"torch": "2.12.0", "python": "3.12.4"}, fingerprint="f" * 16)
    more = [Probe(group="randomness", name="dropout", precision="fp32", verdict="seed decides")]
    return [
        sample_passport(number=0, environment=former, verdicts={"order": "in order"}),
        sample_passport(number=1, verdicts={"order": "superseded"}),
        sample_passport(number=2),
        sample_passport(mode="compiled", number=3),
        sample_passport("xla", "compiled", 4, verdicts={"fp32 bits": "<8 bits>", "order": "blocks of 16"}, more=more),
    ]


SCHEMES = {
    "torch.testing.assert_close": "PyTorch's tolerances by dtype",
    "cosine": "cosine similarity of at least 0.999",
}


def mutant(name: str, expected: list[str], tiers: list[str], found: str = "", **changes: Any) -> MutantResult:
    """What the checks said of one implementation."""
    fields: dict[str, Any] = {
        "name": name,
        "subject": "matmul",
        "precision": "fp32",
        "expected": expected,
        "tiers": tiers,
        "found": found,
        "named": found in expected,
        "schemes": {"torch.testing.assert_close": bool(tiers), "cosine": False},
    }
    return MutantResult(**{**fields, **changes})


def sample_mutation() -> MutationReport:
    """Caught and named, misnamed, missed, a correct variant, a false alarm, and one that no scheme applies to."""
    return MutationReport(
        schema_version=MUTATION_VERSION,
        made_at="2026-11-02T03:00:00Z",
        versions={"torch": "2.13.0"},
        results=[
            mutant("operands cut to bf16", ["bf16 operands"], ["T0", "T1"], "bf16 operands"),
            mutant("accumulates in bf16", ["bf16 accumulator"], ["T1"], "bf16 operands"),
            mutant("drops the last <term>", ["last term dropped"], [], subject="linear"),
            mutant("read with the wrong table", ["wrong table"], ["T0"], "wrong table", subject="formats", schemes={}),
            mutant("tiles of 128", [], []),
            mutant("adds from the end", [], [], schemes={"torch.testing.assert_close": True, "cosine": False}),
            mutant("fused", [], ["T2"], "unexplained", subject="linear"),
        ],
        schemes=SCHEMES,
    )


def write_conformance(root: Path) -> Path:
    """A results folder with all of it, one broken passport among them; deviations lie beside it in `deviations`."""
    write_all(root, conformance_records())
    store = PassportStore(root)
    for passport in sample_passports():
        store.write(passport)
    (root / "passports" / "cpu" / "cut.json").write_text('{"schema_version": 1', encoding="utf-8")
    write_mutation_report(root, sample_mutation())
    folder = root.parent / "deviations"
    folder.mkdir()
    (folder / "cpu.toml").write_text(DEVIATIONS, encoding="utf-8")
    return root


def simulated(passport: Passport) -> Passport:
    """The same, made on a stand-in."""
    return msgspec.structs.replace(passport, simulated=True, passport_id=f"{passport.passport_id}s")
