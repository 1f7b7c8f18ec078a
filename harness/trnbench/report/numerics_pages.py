"""The pages about numerics, where there is something to show: conformance, passports, and the test of the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.conformance_page import ConformancePage, build_conformance, conformance_sentence
from trnbench.report.mutants_page import MutantsPage, build_mutants
from trnbench.report.passports_page import PassportsPage, build_passports
from trnbench.report.views import PageLink

if TYPE_CHECKING:
    from trnbench.report.material import Material

CONFORMANCE, PASSPORTS, MUTANTS = "conformance.html", "passports.html", "mutants.html"
TITLES = {
    CONFORMANCE: "Does it compute the same thing?",
    PASSPORTS: "Passports: what is each backend's arithmetic like?",
    MUTANTS: "Are the checks themselves any good?",
}
_SHORT = {CONFORMANCE: "Conformance", PASSPORTS: "Passports", MUTANTS: "Mutants"}


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """The three pages, None where the records give nothing to show, and links to those that exist."""

    conformance: ConformancePage | None
    passports: PassportsPage | None
    mutants: MutantsPage | None

    @property
    def links(self) -> list[PageLink]:
        """The pages that exist, in the order of the navigation."""
        told = {
            CONFORMANCE: conformance_sentence(self.conformance) if self.conformance else "",
            PASSPORTS: self.passports.words if self.passports else "",
            MUTANTS: f"{self.mutants.headline}." if self.mutants else "",
        }
        return [
            PageLink(path=path, short=_SHORT[path], title=TITLES[path], sentence=sentence)
            for path, sentence in told.items()
            if sentence
        ]


def build_numerics(material: Material) -> Numerics:
    """Everything that the pages about numerics show."""
    return Numerics(
        conformance=build_conformance(material),
        passports=build_passports(material),
        mutants=build_mutants(material.mutation) if material.mutation else None,
    )
