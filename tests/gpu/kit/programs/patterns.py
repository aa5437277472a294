"""Memory filled with a pattern and verified by the kernels (kernels/integrity.h): planted bytes are found; times beside a copy's."""
import argparse
import ctypes

import torch
from losses import median_ns

from tell import tell


class Pattern(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("word", ctypes.c_uint32), ("seed", ctypes.c_uint32)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", action="store_true", help="little memory, and no times")
    simulated = parser.parse_args().simulated
    from gapless._library import library

    kernels = ctypes.CDLL(str(library("libgapless_kernels.so")))
    kernels.gapless_kernels_last_error.restype = ctypes.c_char_p
    count = 300_013 if simulated else 5 << 30  # more than 32 bits count
    memory = torch.zeros(count, dtype=torch.uint8, device="cuda")
    verdict = torch.zeros(4, dtype=torch.int64, device="cuda")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def call(name: str, *words) -> None:
        if getattr(kernels, f"gapless_memory_{name}")(*words, stream):
            raise SystemExit((kernels.gapless_kernels_last_error() or b"").decode())

    def fill(pattern) -> None:
        call("fill", ctypes.byref(pattern), ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(count))

    def verify(pattern) -> "list[int]":
        call("verify", ctypes.byref(pattern), ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(count),
             ctypes.c_void_p(verdict.data_ptr()))
        return verdict.tolist()

    wrong = []
    for pattern in (Pattern(0, 0xFFFFFFFF, 0), Pattern(1, 0, 7)):
        fill(pattern)
        if (found := verify(pattern)) != [count, 0, -1, -1]:
            wrong.append(f"pattern {pattern.kind}: {found} of memory that nobody wrote to")
        at = count - 5
        memory[at] = memory[at] ^ 1
        if (found := verify(pattern)) != [count, 1, at, at]:
            wrong.append(f"pattern {pattern.kind}: {found} of a byte that was changed at {at}")
    tell(bytes=count, wrong=wrong)
    if not simulated:
        half = memory[:count // 2]
        pattern = Pattern(1, 0, 7)
        copy = 2 * median_ns(lambda: memory[count // 2:count // 2 * 2].copy_(half), 10)  # reads and writes all of it, together
        filled = median_ns(lambda: fill(pattern), 10)
        verified = median_ns(lambda: call("verify", ctypes.byref(pattern), ctypes.c_void_p(memory.data_ptr()),
                                          ctypes.c_size_t(count), ctypes.c_void_p(verdict.data_ptr())), 10)
        tell(fill_ns=filled, verify_ns=verified, fill_of_copy=copy / 2 / filled, verify_of_copy=copy / 2 / verified)


if __name__ == "__main__":
    main()
