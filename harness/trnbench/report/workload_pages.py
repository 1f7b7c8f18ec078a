"""The pages about serving and about training to quality, where there are records of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.serving_page import SERVING, SERVING_SHORT, SERVING_TITLE, ServingPage, build_serving
from trnbench.report.training_page import TRAINING, TRAINING_SHORT, TRAINING_TITLE, TrainingPage, build_training
from trnbench.report.views import PageLink

if TYPE_CHECKING:
    from trnbench.report.material import Material


class Workloads(msgspec.Struct, frozen=True, kw_only=True):
    """The two pages, None where the records give nothing to show, and links to those that exist."""

    serving: ServingPage | None
    training: TrainingPage | None

    @property
    def links(self) -> list[PageLink]:
        """The pages that exist, in the order of the navigation."""
        told = (
            (SERVING, SERVING_SHORT, SERVING_TITLE, self.serving.headline if self.serving else ""),
            (TRAINING, TRAINING_SHORT, TRAINING_TITLE, self.training.headline if self.training else ""),
        )
        return [
            PageLink(path=path, short=short, title=title, sentence=sentence)
            for path, short, title, sentence in told
            if sentence
        ]


def build_workloads(material: Material) -> Workloads:
    """Everything that the pages about serving and training show."""
    return Workloads(serving=build_serving(material), training=build_training(material))
