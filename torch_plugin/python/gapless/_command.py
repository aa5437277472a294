"""The `gapless` command of an installed package: the program beside it."""
import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin" / "gapless"
    if not program.exists():
        sys.exit(f"gapless: {program} is not there")
    os.execv(program, [str(program), *sys.argv[1:]])
