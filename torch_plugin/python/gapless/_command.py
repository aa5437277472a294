"""The `gapless` command of an installed package: the program beside it."""
import os
import sys


def main() -> None:
    from ._library import package_folders
    for folder in package_folders():
        program = folder / "bin" / "gapless"
        if program.exists():
            os.execv(program, [str(program), *sys.argv[1:]])
    sys.exit(f"gapless: there is no bin/gapless in {', '.join(map(str, package_folders()))}")
