"""python -I .../gapless/_for_preload.py FOLDER LIBRARIES KIND   prints the path of a library for the torch in that folder

LIBRARIES: where libgapless_preload.so lies, beside what it is built of (an editable installation has its modules
elsewhere). KIND: of _build.KINDS.

libgapless_preload.so or libsimgpu.so runs this, in a process of its own, beside a program that is about to use CUDA.
Isolated (-I) and by its path: nothing of the program's folder, nor of PYTHONPATH, is to run here, whatever it is called.
"""
import pathlib
import sys
import types


def main() -> int:
    package = types.ModuleType("gapless")  # the one around this file, and no other of that name
    package.__path__ = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(sys.argv[2]).parent)]
    sys.modules["gapless"] = package
    from gapless import _build
    from gapless._library import GaplessError
    try:
        print(_build.library(_build.KINDS[sys.argv[3]], pathlib.Path(sys.argv[1]), once=True))
    except GaplessError as error:
        print(f"gapless: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
