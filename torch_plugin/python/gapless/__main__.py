"""python -m gapless [-c OPTIONS] [--check-streams] SCRIPT [ARGUMENT...]   runs a script with gapless
python -m gapless [-c OPTIONS] [--check-streams] -m MODULE [ARGUMENT...]   or a module
python -m gapless build [--once] [FOLDER]                builds the adapter for the torch that is installed, or
                                                         the one in that folder (.../site-packages/torch);
                                                         --once: unless that failed within the last hour

Examples:
  python -m gapless train.py --batch 8
  python -m gapless -c limit:14GiB,spill:4GiB -m torch.distributed.run train.py

--check-streams tells of tensors that go while another stream still uses them (gapless.check_streams).

Exit status: the script's; 1 where streams were checked and there was a mistake; 2 where gapless cannot be
installed, or an option cannot be understood.
"""
from __future__ import annotations

import os
import sys

SAFE = bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))
if not SAFE:
    del sys.path[0]  # the current folder: the script's own comes in its place, as without gapless

import argparse  # noqa: E402
import pathlib  # noqa: E402
import runpy  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gapless", description=__doc__, add_help=True,
                                     formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("-c", "--conf", metavar="OPTIONS", help="as GAPLESS_CONF: key:value,...")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("--check-streams", action="store_true", help="tell of forgotten record_stream()")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()

    import gapless
    try:
        if chosen.script == "build" and not chosen.module:
            from gapless import _build
            folders = [pathlib.Path(word) for word in chosen.arguments if word != "--once"]
            print(_build.adapter(folders[0] if folders else None, once="--once" in chosen.arguments))
            return 0
        gapless.install(chosen.conf)
        if chosen.check_streams:
            gapless.check_streams(error=True).enable()
    except gapless.GaplessError as error:
        print(f"gapless: {error}", file=sys.stderr)
        return 2
    sys.argv = [chosen.script, *chosen.arguments]
    if chosen.module:
        if not SAFE:
            sys.path.insert(0, os.getcwd())
        runpy.run_module(chosen.script, run_name="__main__", alter_sys=True)
        return 0
    if not os.path.exists(chosen.script):
        print(f"gapless: {chosen.script}: there is no such file", file=sys.stderr)
        return 2
    if not SAFE:
        sys.path.insert(0, os.path.dirname(os.path.abspath(chosen.script)))
    runpy.run_path(chosen.script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
