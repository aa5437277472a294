#!/usr/bin/env python3
"""Writes, for one library in front of the simulated GPU, what is not written by hand.

    stubs.py libcudart.so.13 OUT_DIR

OUT_DIR/libcudart.so.13.c     a weak function for every name in simgpu/symbols/libcudart.so.13.txt; a
                              function written by hand takes its place
OUT_DIR/libcudart.so.13.map   the linker's version script
"""
import pathlib
import re
import sys
from collections import defaultdict

SYMBOLS = pathlib.Path(__file__).parent.parent / "symbols"

# The words of symbols/answers/*.txt (answers.py tells their meaning) as C; a is for arguments.
ANSWERS = {
    "make": lambda words: (int(words[0]), f"return simgpu_make(a{words[0]});"),
    "drop": lambda words: (int(words[0]), f"return simgpu_drop(a{words[0]});"),
    "stream": lambda words: (1, "return simgpu_set_stream(a0, a1);"),
    "set": lambda words: (0, "(void)a0; return 0;"),
}

# These return a text, not a status.
TEXT = re.compile(r"(Get|get)\w*(Error|Status)(String|Name)|GetLastErrorString|ErrorString$|GetErrorName")


def status_of(soname: str) -> str:
    for line in (SYMBOLS / "libraries.txt").read_text().splitlines():
        fields = line.split()
        if fields and fields[0] == soname:
            return fields[1]
    raise SystemExit(f"stubs.py: {soname} is not in libraries.txt")


def outputs(words: list[str], call: str) -> tuple[int, str]:
    """`5:4 6:4x7`: zeros to the 4 bytes that argument 5 points to, and to a7 times 4 at argument 6."""
    last, code = 0, []
    for word in words:
        place, width, count = re.fullmatch(r"(\d+):(\d+)(?:x(\d+))?", word).groups()
        times = f"(int)(long)a{count}" if count else "1"
        code.append(f"simgpu_zero(a{place}, {width}, {times});")
        last = max(last, int(place), int(count or 0))
    return last, " ".join([*code, call])


def answered(name: str, kind: str, words: list[str], soname: str, status: int) -> str:
    if kind == "size":
        last, body = outputs(words, f'(void)a0; simgpu_guess("{soname}"); return 0;')
    elif kind == "work":
        last, body = outputs(words, f"return simgpu_work(a0) == 0 ? 0 : {status};")
    else:
        last, body = ANSWERS[kind](words)
    taken = ", ".join(f"void* a{i}" for i in range(last + 1))
    unused = " ".join(f"(void)a{i};" for i in range(last + 1))
    return f"OPEN int {name}({taken}); OPEN int {name}({taken}) {{ {unused} {body} }}"


def read_answers(soname: str) -> dict[str, list[str]]:
    path = SYMBOLS / "answers" / f"{soname}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split()[0]: line.split()[1:] for line in lines}


def main() -> None:
    soname, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    status = status_of(soname)
    answers = read_answers(soname)
    nodes = defaultdict(list)
    code = [
        "/* Made by simgpu/front/stubs.py; do not edit. */",
        "int simgpu_missing(const char* library, const char* function, int status);",
        "#define OPEN __attribute__((weak, visibility(\"default\")))",
        "#define STUB(name) OPEN int name(void);"
        f" OPEN int name(void) {{ return simgpu_missing(\"{soname}\", #name, {status}); }}",
        "int simgpu_work(const void* handle);",
        "int simgpu_make(void* handle); int simgpu_drop(void* handle);",
        "int simgpu_set_stream(void* handle, void* stream);",
        "void simgpu_zero(void* target, int width, int count);",
        "void simgpu_guess(const char* library);",
        "#define TEXT(name) OPEN const char* name(void);"
        f" OPEN const char* name(void) {{ return \"{soname}: error\"; }}",
    ]
    for line in (SYMBOLS / f"{soname}.txt").read_text().splitlines():
        name, version, *data = line.split()
        nodes[version].append(name)
        if data:
            code.append(f"OPEN char {name}[{data[1]}];")
        elif TEXT.search(name):
            code.append(f"TEXT({name})")
        elif name in answers:
            kind, *words = answers[name]
            code.append(answered(name, kind, words, soname, int(status)))
        else:
            code.append(f"STUB({name})")
    (out / f"{soname}.c").write_text("\n".join(code) + "\n")
    script = []
    plain = nodes.pop("-", [])
    names = "".join(f"    {name};\n" for name in plain)
    if not nodes:
        script.append(f"{{\n  global:\n{names}  local: *;\n}};\n")
    else:
        for i, (version, versioned) in enumerate(sorted(nodes.items())):
            names = "".join(f"    {name};\n" for name in sorted(versioned) + (plain if i == 0 else []))
            rest = "  local: *;\n" if i == 0 else ""
            script.append(f"{version} {{\n  global:\n{names}{rest}}};\n")
    (out / f"{soname}.map").write_text("".join(script))


if __name__ == "__main__":
    main()
