"""Takes a passport of an open backend: every instrument, in the numerics of its precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.conformance.arithmetic import PRECISIONS
from trnbench.conformance.passport.instrument import Result, read
from trnbench.conformance.passport.registry import INSTRUMENTS
from trnbench.conformance.passport.subject import DeviceSubject, Unknown
from trnbench.records.environment import collect_with_reasons
from trnbench.records.ids import utc_now
from trnbench.records.passport import Passport, Probe, assemble_passport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.backends.base import Backend
    from trnbench.conformance.passport.instrument import Instrument
    from trnbench.device import Scalar


def take_passport(
    backend: Backend, mode: str, instruments: Sequence[Instrument] = INSTRUMENTS, outputs: Sequence[Path] = ()
) -> Passport:
    """All readings of `instruments` on the backend's device in `mode`; a probe that fails has no verdict but a reason.

    `outputs` are folders that do not make the checkout count as changed. Raises `UsageError` where a variable that
    changes dtypes behind Python's back is set.
    """
    started_at = utc_now()
    numerics: dict[str, dict[str, Scalar]] = {}
    results: list[Result] = []
    for precision in dict.fromkeys(name for instrument in instruments for name in instrument.precisions):
        refusal = backend.unsupported(precision, mode) if precision in PRECISIONS else None
        # 8-bit operands have no switches of their own.
        with backend.numerics(precision if precision in PRECISIONS else "fp32") as in_force:
            numerics[precision] = dict(in_force)
            subject = DeviceSubject(backend, mode)
            for instrument in instruments:
                if precision not in instrument.precisions:
                    continue
                results += _refused(instrument, precision, refusal) or read(instrument, subject, precision)
    position = {name: index for index, name in enumerate(dict.fromkeys(each.group for each in results))}
    results.sort(key=lambda each: position[each.group])
    # Described last: only now does the backend know where its outputs really were.
    device = backend.describe()
    environment, reasons = collect_with_reasons(device, backend.versions(), backend.flags(), Path.cwd(), outputs)
    reasons |= {
        f"probes[{index}].verdict": result.reading.reason
        for index, result in enumerate(results)
        if isinstance(result.reading, Unknown)
    }
    return assemble_passport(
        device=device,
        environment=environment,
        mode=mode,
        numerics=numerics,
        simulated=backend.simulated,
        probes=[_probe(result) for result in results],
        started_at=started_at,
        reasons=reasons,
    )


def _refused(instrument: Instrument, precision: str, refusal: str | None) -> list[Result]:
    """The results of an instrument whose precision the device refuses; empty where it does not.

    float32 is probed all the same: how a device treats what it does not offer is what a passport is for.
    """
    if refusal is None or precision == "fp32":
        return []
    return [
        Result(group=instrument.group, name=name, precision=precision, reading=Unknown(refusal))
        for name in instrument.names
    ]


def _probe(result: Result) -> Probe:
    found = result.reading
    return Probe(
        group=result.group,
        name=result.name,
        precision=result.precision,
        verdict=None if isinstance(found, Unknown) else found.verdict,
        details={} if isinstance(found, Unknown) else found.details,
    )
