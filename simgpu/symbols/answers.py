#!/usr/bin/env python3
"""Reads out of public headers what a simulated function has to answer.

    answers.py /usr/local/cuda/include

writes simgpu/symbols/answers/SONAME.txt, a line for each function of the headers that torch could
call, arguments counted from 0:

    cusolverDnCreate make 0                      argument 0 points to where a new handle goes
    cusolverDnDestroy drop 0
    cusolverDnSetStream stream                   handle, stream
    cusparseSetMatType set                       nothing to do
    cusolverDnSgetrf_bufferSize size 5:4         sizes of 4 bytes to answer, of workspaces
    cusolverDnSgetrf work 7:4                    computes: numbers of 4 bytes that tell how it went
    cusolverDnSpotrfBatched work 6:4x7           as many of them as argument 7 says
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent

HEADERS = {
    "libcublas.so.13": ["cublas_api.h"],
    "libcusolver.so.12": ["cusolverDn.h"],
    "libcusparse.so.12": ["cusparse.h"],
    "libcudnn.so.9": ["cudnn_graph_v9.h", "cudnn_ops_v9.h", "cudnn_cnn_v9.h", "cudnn_adv_v9.h"],
}
BYTES = {"int": 4, "size_t": 8, "int64_t": 8, "cusolver_int_t": 4}
FUNCTION = re.compile(r"(?:cublasStatus_t|cusolverStatus_t|cusparseStatus_t|cudnnStatus_t)\s+"
                      r"(?:CUBLASWINAPI|CUSOLVERAPI|CUSPARSEAPI|CUDNNWINAPI)\s+(\w+)\s*\(([^;{]*)\)\s*;")


def parameters(text: str) -> list[tuple[str, str]]:
    """(type, name) of each, spaces taken out of the type."""
    found = []
    for parameter in text.split(","):
        words = re.match(r"(.*?)(\w+)(\[\w*\])?$", " ".join(parameter.split()))
        if words:
            found.append((words[1].replace(" ", "") + ("*" if words[3] else ""), words[2]))
    return found


def answer(name: str, taken: list[tuple[str, str]]) -> str:
    if re.search(r"SetStream$", name):
        return "stream"
    if re.search(r"[Cc]reate(?!IdentityPermutation)", name):
        made = [i for i, (kind, _) in enumerate(taken) if kind.endswith("*")]
        return f"make {made[0]}"
    if re.search(r"[Dd]estroy", name):
        return "drop 0"
    if re.search(r"Set[A-Z]|RestoreDropout|Logger", name):
        return "set"
    outputs = []
    batch = next((i for i, (_, called) in enumerate(taken) if called == "batchSize"), None)
    for i, (kind, called) in enumerate(taken):
        width = BYTES.get(kind.removesuffix("*")) if kind.endswith("*") else None
        if width is not None and "const" not in kind:
            of = f"x{batch}" if batch is not None and "info" in called.lower() else ""
            outputs.append(f"{i}:{width}{of}")
    sizes = re.search(r"[sS]ize|Size(Ext)?$", name)
    return " ".join(["size" if sizes else "work", *outputs])


def main() -> None:
    include = pathlib.Path(sys.argv[1])
    for soname, headers in HEADERS.items():
        lines = {}
        for header in headers:
            text = (include / header).read_text(errors="replace")
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
            for name, taken in FUNCTION.findall(text):
                lines[name] = answer(name, parameters(taken))
        path = HERE / "answers" / f"{soname}.txt"
        path.write_text("".join(f"{name} {lines[name]}\n" for name in sorted(lines)))
        print(f"{path.name}: {len(lines)}")


if __name__ == "__main__":
    main()
