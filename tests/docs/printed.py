"""What README.md and docs/*.md print: blocks of code, and commands within sentences.

    ```sh                       Block("sh", "README.md", 24, "gapless fit run.pickle\n...")
    gapless fit run.pickle
    ```
    ... `gapless fit` says ...  Span("README.md", 27, "gapless fit")
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclasses.dataclass(frozen=True)
class Block:
    language: str  # "sh", "python", "c", or "" for pictures and output
    page: str
    line: int  # of its first line of code
    text: str

    def commands(self) -> list[tuple[int, str]]:
        """The commands of a shell block, each with its line in the page; continued lines are one."""
        found = []
        for line in re.finditer(r"^[^\n]*(?:\\\n[^\n]*)*$", self.text, re.MULTILINE):
            command = line.group().strip()
            if command and not command.startswith("#"):
                found.append((self.line + self.text[:line.start()].count("\n"), command))
        return found


@dataclasses.dataclass(frozen=True)
class Span:
    page: str
    line: int
    text: str


def read(page: pathlib.Path) -> tuple[list[Block], list[Span]]:
    """The fenced blocks of a page, and the code within its sentences."""
    name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
    line_of = lambda position: text[:position].count("\n") + 1  # noqa: E731
    fences = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    blocks = [Block(fence[1], name, line_of(fence.start(2)), fence[2]) for fence in fences]
    prose = re.sub(r"^```.*?^```$", lambda fence: "\n" * fence.group().count("\n"), text,
                   flags=re.MULTILINE | re.DOTALL)
    spans = [Span(name, prose[:span.start()].count("\n") + 1, span[1])
             for span in re.finditer(r"`([^`\n]+)`", prose)]
    return blocks, spans
