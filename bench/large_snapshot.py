"""Writes a PyTorch memory snapshot of any size, as torch.cuda.memory._dump_snapshot() lays it out.

    python3 bench/large_snapshot.py large.pickle --events 5000000

Keys, frames and pools are written once and named by their number afterwards; each allocation has a
list of frames of its own, which its two frees share. Events are written as they are made, so the
script needs no more memory than Python itself.
"""

import argparse
import random
import struct


class Pickle:
    """Opcodes of protocol 4, with numbers for what is memoized."""

    def __init__(self, file):
        self.file = file
        self.memo = 0
        self.texts = {}

    def memoized(self, opcodes):
        self.memo += 1
        return opcodes + b"\x94"

    def get(self, number):
        return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)

    def text(self, value):
        if value in self.texts:
            return self.get(self.texts[value])
        raw = value.encode()
        self.texts[value] = self.memo
        if len(raw) < 256:
            return self.memoized(b"\x8c" + bytes([len(raw)]) + raw)
        return self.memoized(b"X" + struct.pack("<I", len(raw)) + raw)

    def integer(self, value):
        if value < 256:
            return b"K" + bytes([value])
        if value < 65536:
            return b"M" + struct.pack("<H", value)
        if value < 1 << 31:
            return b"J" + struct.pack("<I", value)
        width = value.bit_length() // 8 + 1
        return b"\x8a" + bytes([width]) + value.to_bytes(width, "little")

    def dict(self, items):
        """Of pairs of a key and the opcodes of its value; the dict comes before them."""
        begin = self.memoized(b"}") + b"("
        return begin + b"".join(self.text(key) + value() for key, value in items) + b"u"

    def list_of(self, values):
        """Of what a function returns, which is called when the list has its number."""
        return self.memoized(b"]") + b"(" + b"".join(values()) + b"e"


def frames_of(pickle, count):
    """The opcodes that name each of so many frames, which are written with the first block."""
    made = []
    opcodes = []
    for i in range(count):
        number = pickle.memo
        file = "model.py" if i % 3 == 0 else f"/usr/lib/python3.11/site-packages/torch/nn/m{i % 40}.py"
        opcodes.append(
            pickle.dict(
                [
                    ("filename", lambda: pickle.text(file)),
                    ("line", lambda: pickle.integer(10 + i)),
                    ("name", lambda: pickle.text(f"function_{i % 200}")),
                ]
            )
        )
        made.append(pickle.get(number))
    return opcodes, made


def write(file, events, depth, seed):
    pickle = Pickle(file)
    chance = random.Random(seed)
    begin, segment_bytes, slots = 0x7F0000000000, 64 << 20, 4096
    file.write(b"\x80\x04" + pickle.memoized(b"}") + b"(")
    file.write(pickle.text("segments") + pickle.memoized(b"]") + b"(")
    frames = []

    def all_frames():
        opcodes, names = frames_of(pickle, 900)
        frames.extend(names)
        return opcodes

    segments = slots * (1 << 20) // segment_bytes
    for i in range(segments):
        address = begin + i * segment_bytes
        file.write(
            pickle.dict(
                [
                    ("device", lambda: pickle.integer(0)),
                    ("address", lambda: pickle.integer(address)),
                    ("total_size", lambda: pickle.integer(segment_bytes)),
                    ("stream", lambda: pickle.integer(0)),
                    ("segment_type", lambda: pickle.text("large")),
                    ("is_expandable", lambda: b"\x89"),
                    ("frames", lambda: pickle.list_of(all_frames if i == 0 else list)),
                    (
                        "blocks",
                        lambda: pickle.list_of(
                            lambda: [
                                pickle.dict(
                                    [
                                        ("address", lambda: pickle.integer(address)),
                                        ("size", lambda: pickle.integer(segment_bytes)),
                                        ("requested_size", lambda: pickle.integer(0)),
                                        ("state", lambda: pickle.text("inactive")),
                                        ("frames", lambda: pickle.list_of(list)),
                                    ]
                                )
                            ]
                        ),
                    ),
                ]
            )
        )
    file.write(b"e" + pickle.text("device_traces") + pickle.memoized(b"]"))
    file.write(pickle.memoized(b"]") + b"(")
    stacks = [[chance.choice(frames) for _ in range(depth)] for _ in range(2000)]
    free = list(range(slots))
    live = []
    time_us = 1_760_000_000_000_000
    written = 0

    def event(action, slot, size, stack):
        nonlocal time_us, written
        time_us += chance.randrange(1, 200)
        file.write(
            pickle.dict(
                [
                    ("action", lambda: pickle.text(action)),
                    ("addr", lambda: pickle.integer(begin + (slot << 20))),
                    ("size", lambda: pickle.integer(size)),
                    ("stream", lambda: pickle.integer(0)),
                    ("time_us", lambda: pickle.integer(time_us)),
                    ("frames", stack),
                ]
            )
        )
        written += 1
        if written % 1000 == 0:  # as Python's pickler does
            file.write(b"e(")

    # So that each block is freed in the end: three events a block.
    while written < events:
        if free and (len(live) < slots // 2 or chance.random() < 0.5) and written + 3 * len(live) < events:
            slot = free.pop(chance.randrange(len(free)))
            size = chance.randrange(1, 2048) * 512
            number = None

            def new_stack():
                nonlocal number
                number = pickle.memo
                return pickle.list_of(lambda: chance.choice(stacks))

            event("alloc", slot, size, new_stack)
            live.append((slot, size, number))
        elif live:
            at = chance.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            slot, size, number = live.pop()
            event("free_requested", slot, size, lambda: pickle.get(number))
            event("free_completed", slot, size, lambda: pickle.get(number))
            free.append(slot)
        else:
            break
    file.write(b"ea" + pickle.text("allocator_settings") + pickle.dict([("a", lambda: b"N")]) + b"u.")
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output")
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--depth", type=int, default=120, help="frames of each stack")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with open(arguments.output, "wb", buffering=1 << 20) as file:
        print(write(file, arguments.events, arguments.depth, arguments.seed), "events")


if __name__ == "__main__":
    main()
