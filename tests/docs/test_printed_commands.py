"""Every command that README.md and docs/ print does what it says, typed as it is printed."""
import os
import re
import subprocess
import textwrap

import pytest

from printed import PAGES, ROOT, Block, Span, read

GAPLESS = ROOT / "build/release/bin/gapless"
# What has a test of its own: make's targets by tools/setup/test.sh, the kit by tools/setup/gpu_kit_test.sh. The other
# machine that a kit is brought to is not here.
TESTED_ELSEWHERE = re.compile(r"make \w|scp |.*\bgpu-kit/run\b")
# The placeholders of sentences: FILE, KIND, NAME, TRACES, ...
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\.\.\.|\[|<")


# What they print takes minutes, and is what the tests of those commands do.
THOROUGH = {("search.md", "sh"), ("python.md", "python")}


def pages_with(language: str) -> list:
    return [pytest.param(page, id=page.name, marks=[pytest.mark.thorough] if (page.name, language) in THOROUGH else [])
            for page in PAGES if any(block.language == language for block in read(page)[0])]


def blocks_of(page, language: str) -> list[Block]:
    return [block for block in read(page)[0] if block.language == language]


@pytest.mark.parametrize("page", pages_with("sh"))
def test_shell(reader, page):
    """In the order of the page, in one folder: what one command leaves is there for the next."""
    failed = []
    if page.name != "README.md":  # which says itself how to install; each reader has an environment of their own
        reader.install()
    for block in blocks_of(page, "sh"):
        for line, command in block.commands():
            if TESTED_ELSEWHERE.match(command):
                continue
            done = reader.run(command)
            # 3: something did not fit, which may be what the command is there to show.
            if done.returncode not in (0, 3):
                failed.append(f"{block.page}:{line}: {command}\nexit status {done.returncode}\n"
                              f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("page", pages_with("python"))
def test_python(reader, page):
    """The blocks of a page are one program, with what they leave to their reader in front."""
    before = """
        import torch, gapless
        from train import train
        gapless.install()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            weights = torch.ones(1 << 20, device="cuda")
    """
    code = textwrap.dedent(before) + "\n".join(block.text for block in blocks_of(page, "python"))
    reader.install()
    (reader.folder / "printed.py").write_text(code)
    done = reader.run("python printed.py")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages_with("c"))
def test_c(reader, page):
    code = "\n".join(block.text for block in blocks_of(page, "c"))
    (reader.folder / "printed.c").write_text(
        "#include <stdio.h>\n#include \"allocator/gapless.h\"\nint main(void) { void* stream = NULL;\n" + code + "return 0; }\n")
    done = reader.run("gcc -Wall -Wno-unused -Werror -I. printed.c -o printed -Lbuild/release/lib -lgapless -Wl,-rpath,build/release/lib"
                      " && ./printed")
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr


def spans() -> list[Span]:
    return [span for page in PAGES for span in read(page)[1]]


def help_of(*words: str) -> str:
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words} --help: {done.stderr}"
    return done.stdout


def test_subcommands_and_options_in_sentences_exist():
    """`gapless fit --passes 4` within a sentence: there is such a subcommand, and it has such an option."""
    wrong = []
    for span in spans():
        for command in re.findall(r"(?<!-m )(?<![\w./-])gapless ([a-z][^|;]*)", span.text):
            subcommand, _, rest = command.partition(" ")
            if subcommand not in known_subcommands():
                wrong.append(f"{span}: no subcommand {subcommand}")
                continue
            own = rest.split(" -- ")[0]
            known = help_of(str(GAPLESS), subcommand)
            wrong += [f"{span}: {subcommand} has no {option}" for option in re.findall(r"--[a-z][a-z-]*", own)
                      if not re.search(rf"{option}\b", known)]
    assert not wrong, "\n".join(map(str, wrong))


def known_subcommands() -> set[str]:
    listed = help_of(str(GAPLESS)).split("SUBCOMMANDS")[-1].split("Subcommands:")[-1]
    return set(re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE))


def test_files_in_sentences_exist():
    wrong = []
    for span in spans():
        for word in re.findall(r"(?<![\w./-])(?:allocator|simgpu|torch_plugin|bench|tools|tests|docs|examples|kernels)/[\w./*-]*", span.text):
            if PLACEHOLDER.search(word) or "VERSION" in word:
                continue
            if not list(ROOT.glob(word.rstrip("/.") or ".")):
                wrong.append(f"{span.page}:{span.line}: {word}")
    assert not wrong, "\n".join(wrong)


def test_variables_in_sentences_are_read_somewhere():
    sources = subprocess.run(["git", "grep", "-hoE", r"\b(GAPLESS|SIMGPU)_?[A-Z_]*\b", "--", "*.cc", "*.h", "*.py", "*.txt",
                              "*.sh", "Makefile"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    read_somewhere = set(sources)
    wrong = [f"{span.page}:{span.line}: {name}" for span in spans()
             for name in re.findall(r"\b(?:GAPLESS|SIMGPU)(?:_[A-Z]+)*\b", span.text) if name not in read_somewhere]
    assert not wrong, "\n".join(wrong)


def test_make_targets_exist():
    """That CI tries each of them is tools/setup/test.sh's to say."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    printed = {target for page in PAGES for block in blocks_of(page, "sh") for _, command in block.commands()
               for target in re.findall(r"^make ([a-z-]+)", command)}
    printed |= {target for span in spans() for target in re.findall(r"^make ([a-z-]+)", span.text)}
    assert printed <= targets, printed - targets


def test_json_where_it_is_said():
    """README: every command has --json."""
    without = [name for name in sorted(known_subcommands()) if "--json" not in help_of(str(GAPLESS), name)]
    assert not without, without
