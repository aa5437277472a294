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

# These return a text, not a status.
TEXT = re.compile(r"(Get|get)\w*(Error|Status)(String|Name)|GetLastErrorString|ErrorString$|GetErrorName")


# What computes, by library: given a handle of the library first, it does nothing and succeeds.
WORK = {
    "libcublas.so.13": re.compile(r"cublas(?!Xt|Create|Destroy|Get|Set|Log|Alloc|Free|Init|Shutdown"
                                  r"|Migrate|Xerbla).*"),
}


def status_of(soname: str) -> str:
    for line in (SYMBOLS / "libraries.txt").read_text().splitlines():
        fields = line.split()
        if fields and fields[0] == soname:
            return fields[1]
    raise SystemExit(f"stubs.py: {soname} is not in libraries.txt")


def main() -> None:
    soname, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    status = status_of(soname)
    nodes = defaultdict(list)
    code = [
        "/* Made by simgpu/front/stubs.py; do not edit. */",
        "int simgpu_missing(const char* library, const char* function, int status);",
        "#define OPEN __attribute__((weak, visibility(\"default\")))",
        "#define STUB(name) OPEN int name(void);"
        f" OPEN int name(void) {{ return simgpu_missing(\"{soname}\", #name, {status}); }}",
        "int simgpu_work(const void* handle);",
        "#define WORK(name) OPEN int name(const void* handle);"
        f" OPEN int name(const void* handle) {{ return simgpu_work(handle) == 0 ? 0 : {status}; }}",
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
        elif soname in WORK and WORK[soname].fullmatch(name):
            code.append(f"WORK({name})")
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
