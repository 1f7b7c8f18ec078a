"""The project's guides as data: their code blocks, links, code spans and emphasised remarks, read with markdown-it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
GUIDES = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    if path.exists()
]


class Block(NamedTuple):
    """A fenced code block: its language, the other words of its info string, its text, and the line it starts at."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def tested(self) -> bool:
        """Whether the guide promises that this works."""
        return "tested" in self.words

    @property
    def exit_code(self) -> int:
        """What each command is to end with: `exit=N` in the info string, else 0."""
        return next((int(word.removeprefix("exit=")) for word in self.words if word.startswith("exit=")), 0)

    def commands(self) -> list[str]:
        """The lines after a `$ ` prompt, each joined with the lines that its backslashes continue."""
        joined = self.text.replace("\\\n", " ")
        return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def parse(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def blocks(guide: Path) -> list[Block]:
    found = []
    for token in parse(guide.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map is not None:
            language, *words = token.info.split() or [""]
            found.append(Block(language, tuple(words), token.content, token.map[0] + 1))
    return found


def inline(guide: Path) -> Iterator[Token]:
    for token in parse(guide.read_text(encoding="utf-8")):
        yield from token.children or []


def code_spans(guide: Path) -> list[str]:
    return [token.content for token in inline(guide) if token.type == "code_inline"]


def links(guide: Path) -> list[str]:
    """Targets of links and images that stay inside the repository."""
    targets = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in inline(guide) if token.attrs]
    return [target for target in targets if target and not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(guide: Path) -> set[str]:
    """The fragments that a code host gives to the headings."""
    tokens = parse(guide.read_text(encoding="utf-8"))
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def remarks(guide: Path, word: str) -> list[tuple[str, str]]:
    """Emphasised texts that hold `word`, as pairs of the section's heading and the text, in order."""
    found, section = [], ""
    tokens = parse(guide.read_text(encoding="utf-8"))
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            section = tokens[index + 1].content
        depth = 0
        for child in token.children or []:
            if child.type in ("em_open", "em_close"):
                depth += child.nesting
                if child.type == "em_open":
                    found.append((section, ""))
            elif depth and child.type in ("text", "code_inline", "softbreak"):
                found[-1] = (section, found[-1][1] + (child.content or " "))
    return [(heading, text) for heading, text in found if re.search(rf"\b{word}\b", text)]
