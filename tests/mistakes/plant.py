"""Plants mistakes in the core, one at a time, and tells which of them the tests find.

  python3 tests/mistakes/plant.py --check          each still applies to the code as it is
  python3 tests/mistakes/plant.py                  build each and run the test that is to find it
  python3 tests/mistakes/plant.py --only sleep     those with "sleep" in their name or file
  python3 tests/mistakes/plant.py --all-tests      run every test program instead, until one fails
  python3 tests/mistakes/plant.py --draw 50 --seed 1
                                                   plant 50 that chance chooses (draw.py)

mistakes.toml names for each the file, the text that is replaced (once in that file), what stands
there instead, what that breaks, and the test. The working tree stays as it is: the work is done in
a copy of it (build/mistakes), which is built again for each, one or a few files at a time.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from draw import draw

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("unit_test", "fault_test", "model_test", "hostile_files_test", "replay_test")
# Of which mistakes are drawn, and what runs of those programs: the others' tests are of files.
CORE = ["allocator/device", "allocator/heap", "allocator/stream", "allocator/memory"]
CORE_PROGRAMS = ("unit_test", "fault_test", "model_test", "replay_test")
TIMEOUT_S = 600
# A mistake may make a program allocate or loop for ever.
MEMORY_KIB = 8 << 20


@dataclass(frozen=True)
class Mistake:
    name: str
    file: str
    text: str
    instead: str
    breaks: str
    # "unit_test Sleep.AnyCallMayFail": a program and a filter; "harmless ...": why none can find it.
    test: str

    def applied(self, source: str) -> str | None:
        """The file's text with the mistake in it; None where the text is not there once."""
        if source.count(self.text) != 1:
            return None
        return source.replace(self.text, self.instead)

    @property
    def is_harmless(self) -> bool:
        return self.test.startswith("harmless")


def read_mistakes(path: Path) -> list[Mistake]:
    with path.open("rb") as file:
        entries = tomllib.load(file)["mistake"]
    mistakes = [Mistake(**{key: str(value) for key, value in entry.items()}) for entry in entries]
    names = [mistake.name for mistake in mistakes]
    if len(set(names)) != len(names):
        raise SystemExit(f"{path}: a name is there twice")
    return mistakes


def check(mistakes: list[Mistake], tests: str) -> int:
    """Which no longer apply, or name a test that is not there."""
    wrong = []
    for mistake in mistakes:
        file = ROOT / mistake.file
        if not file.is_file() or mistake.applied(file.read_text()) is None:
            wrong.append(f"{mistake.name}: its text is not once in {mistake.file}")
        if mistake.is_harmless:
            continue
        test = mistake.test.split()[-1].split(".")[-1].split("/")[0]
        if f", {test})" not in tests:
            wrong.append(f"{mistake.name}: there is no test {test}")
    print("\n".join(wrong) if wrong else f"{len(mistakes)} mistakes apply")
    return 1 if wrong else 0


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.source = folder
        # As deep as the tree's own, so that the compiler's cache knows what does not change.
        self.build = folder / "build" / "release"
        self.jobs = jobs
        self.source.mkdir(parents=True, exist_ok=True)
        self.take_over()

    def take_over(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            file = ROOT / name
            if file.is_file() and not file.is_symlink():
                self.write(name, file.read_bytes())

    def write(self, name: str, content: bytes) -> None:
        """Where nothing changes the file keeps its time, and nothing is built again."""
        file = self.source / name
        if file.is_file() and file.read_bytes() == content:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        shutil.copymode(ROOT / name, file)

    def configure(self) -> None:
        subprocess.run(
            ["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja",
             "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=OFF"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def make(self, programs: tuple[str, ...]) -> bool:
        command = ["cmake", "--build", str(self.build), "--target", *programs, "--", f"-j{self.jobs}"]
        # What does not change comes from the cache, wherever the copy is.
        cache = {"CCACHE_BASEDIR": str(self.source.resolve()), "CCACHE_NOHASHDIR": "1"}
        environment = {**os.environ, **cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.stderr.write(done.stdout[-600:])
        return done.returncode == 0

    def finds(self, program: str, test: str) -> bool | None:
        """Whether the program fails, crashes or does not end; None where it has no such test."""
        arguments = [str(self.build / "bin" / program), "--gtest_brief=1"]
        if test:
            arguments.append(f"--gtest_filter={test}")
        limited = ["bash", "-c", f'ulimit -v {MEMORY_KIB}; ulimit -c 0; exec "$@"', "-", *arguments]
        environment = {"GAPLESS_MODEL_OPS": "20000", **os.environ}
        try:
            done = subprocess.run(
                limited, cwd=self.source, env=environment, timeout=TIMEOUT_S, capture_output=True, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        if b" 0 tests from" in done.stdout:
            return None
        return done.returncode != 0


def plant(copy: Copy, mistake: Mistake, programs: tuple[str, ...]) -> str:
    """What found it. Of `programs` all tests, one program after the other; where there are none, the test it names."""
    source = (ROOT / mistake.file).read_text() if (ROOT / mistake.file).is_file() else ""
    changed = mistake.applied(source)
    if changed is None:
        return "does not apply"
    if mistake.is_harmless and not programs:
        return mistake.test
    program, _, test = mistake.test.partition(" ")
    runs = [(name, "") for name in programs] if programs else [(program, test)]
    copy.write(mistake.file, changed.encode())
    try:
        for name, only in runs:
            if not copy.make((name,)):
                return "does not build"
            found = copy.finds(name, only)
            if found is None:
                return f"NO SUCH TEST {name} {only}"
            if found:
                return f"found by {name} {only}".rstrip()
        return "NOT FOUND"
    finally:
        copy.write(mistake.file, source.encode())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only look whether each applies")
    parser.add_argument("--only", default="", help="those with this in their name or file")
    parser.add_argument("--all-tests", action="store_true", help="run all test programs")
    parser.add_argument("--draw", type=int, default=0, metavar="N", help="plant N that are drawn at random instead")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mistakes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    mistakes = [
        one
        for one in read_mistakes(Path(__file__).with_name("mistakes.toml"))
        if arguments.only in one.name or arguments.only in one.file
    ]
    if arguments.check:
        tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("*_test.cc"))
        return check(mistakes, tests)
    if arguments.draw:
        mistakes = [
            Mistake(f"{file}:{line}", file, text, instead, "", "")
            for file, line, text, instead in draw(ROOT, CORE, arguments.draw, arguments.seed)
        ]
    programs = CORE_PROGRAMS if arguments.draw else PROGRAMS if arguments.all_tests else ()
    copy = Copy(arguments.folder, arguments.jobs)
    copy.configure()
    missed = 0
    for mistake in mistakes:
        answer = plant(copy, mistake, programs)
        if arguments.draw:
            was, now = (text.split("\n")[-1].strip() for text in (mistake.text, mistake.instead))
            print(f"{was}\n  -> {now}")
        missed += not answer.startswith(("found", "harmless"))
        print(f"{mistake.name:<32} {answer}", flush=True)
    print(f"{len(mistakes)} mistakes, {missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
