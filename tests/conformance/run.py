#!/usr/bin/env python3
"""Runs PyTorch's own allocator tests, each in a process of its own.

    run.py FOLDER [--module test_cuda] [--list expected.txt] [--except exceptions.txt] [--jobs 2]
           [--only WORD] [--json FILE] [--fresh] [--seconds S] [--most N]

FOLDER holds the module: test_cuda.py as fetch.sh brings it, or test_newer.py beside this. The interpreter's torch is
tested, with whatever allocator the environment installs. Without --list every test there is runs;
with it, those it names must pass, but for the exceptions, which must fail: exit status 1 where one
does otherwise.

Importing test_cuda.py takes seconds and initialises CUDA, so it is imported once and every test is a
fork. The simulated GPU lives through a fork; PyTorch is told that it does, and gapless, which owns nothing in a child
of a process that uses CUDA, is not told of the fork. A real one does not: with --fresh every test
is a new interpreter, and those that take all of the device's memory run alone, at the end.
"""
import argparse
import ast
import contextlib
import ctypes
import importlib
import io
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
import unittest

TIMEOUT_S = 180
# Tests that want the whole device, or say how much of it is free.
ALONE = re.compile("oom|out_of_memory|memory_fraction|mem_get_info|leak_detection|garbage_collect")


def import_tests(folder: pathlib.Path, module: str, forked: bool = True) -> dict[str, unittest.TestCase]:
    """"TestCuda.test_streams" -> the test."""
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    if forked:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # it would have threads, which no child has
    sys.argv = [str(folder / f"{module}.py")]
    if forked:
        live_through_forks()
        with contextlib.suppress(ImportError):  # each test imports it as it ends, which takes seconds
            import torch._inductor.cudagraph_trees
    found = {}
    for case in unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module)):
        for test in case:
            name = test.id().split(".", 1)[1]
            found[name] = test
    return found


def live_through_forks() -> None:
    import torch
    torch.cuda._is_in_bad_fork = lambda: False
    torch._C._cuda_isInBadFork = lambda: False


def fork_untold() -> int:
    """os.fork() without the handlers that libraries registered for it (pthread_atfork); none has threads here."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None)._Fork()
    (ctypes.pythonapi.PyOS_AfterFork_Parent if pid else ctypes.pythonapi.PyOS_AfterFork_Child)()
    return pid


def run_forked(test: unittest.TestCase, write: int) -> None:
    """In the child: runs the test and writes how it went."""
    output = io.StringIO()
    result = unittest.TestResult()
    process = os.getpid()
    try:
        with contextlib.redirect_stdout(output):
            test.run(result)
        said = ("skipped", result.skipped[0][1]) if result.skipped else \
            ("passed", "") if result.wasSuccessful() else \
            ("failed", (result.errors + result.failures + [(None, "unexpected success")])[0][1])
    except BaseException:  # the parent must hear of it
        said = "failed", traceback.format_exc()
    if os.getpid() != process:
        os._exit(1)  # a fork that the test made, and that should have become another program
    os.write(write, json.dumps(said).encode())
    os._exit(0)


def run_fresh(folder: pathlib.Path, module: str, name: str, write: int) -> None:
    """The same in an interpreter of its own."""
    os.set_inheritable(write, False)
    if "cpp_memory_snapshot_pickle" in name and shutil.which("g++") is None:
        os.write(write, json.dumps(("skipped", "there is no compiler")).encode())
        os._exit(0)
    try:
        test = import_tests(folder, module, forked=False)[name]
    except ModuleNotFoundError as error:
        os.write(write, json.dumps(("skipped", str(error))).encode())
        os._exit(0)
    except BaseException:
        os.write(write, json.dumps(("failed", traceback.format_exc())).encode())
        os._exit(0)
    run_forked(test, write)


def names_in(folder: pathlib.Path, module: str) -> list[str]:
    """The tests that the module's text has, without importing it."""
    tree = ast.parse((folder / f"{module}.py").read_text())
    return [f"{case.name}.{test.name}" for case in tree.body if isinstance(case, ast.ClassDef)
            for test in case.body if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")]


class Child:
    """A test that runs: `test` in a fork, or a new interpreter that runs the command."""

    def __init__(self, name: str, test: unittest.TestCase | list[str]):
        self.name, self.begin = name, time.monotonic()
        self.read, write = os.pipe()
        if isinstance(test, list):
            null = subprocess.DEVNULL
            self.process = subprocess.Popen([*test, "--told-to", str(write)], pass_fds=[write], start_new_session=True,
                                            stdin=null, stdout=null, stderr=null)
            self.pid = self.process.pid
            os.close(write)
            return
        sys.stdout.flush()
        self.pid = fork_untold()
        if self.pid == 0:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            run_forked(test, write)
        os.close(write)

    def finish(self, timed_out: bool) -> tuple[str, str]:
        if timed_out:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        text = b""
        while not timed_out and (part := os.read(self.read, 1 << 16)):
            text += part
        os.close(self.read)
        _, status = os.waitpid(self.pid, 0)
        if timed_out:
            return "failed", f"ran longer than {TIMEOUT_S} s"
        if not text:
            return "failed", f"ended with wait status {status}"
        outcome, reason = json.loads(text)
        return outcome, reason


def run_all(tests: dict[str, unittest.TestCase | list[str]], jobs: int, until: float) -> dict[str, tuple[str, str]]:
    """Those that are not begun by then are "not run"."""
    waiting = list(tests.items())
    running: list[Child] = []
    done = {}
    while waiting or running:
        while waiting and len(running) < jobs and not any(is_alone(child.name, tests) for child in running):
            if time.monotonic() > until:
                done.update({name: ("not run", "the time was used up") for name, _ in waiting})
                waiting.clear()
            elif is_alone(waiting[0][0], tests) and running:
                break
            else:
                running.append(Child(*waiting.pop(0)))
        ready, _, _ = select.select([child.read for child in running], [], [], 1)
        for child in list(running):
            timed_out = time.monotonic() - child.begin > TIMEOUT_S
            if child.read in ready or timed_out:
                done[child.name] = child.finish(timed_out)
                running.remove(child)
                if sys.stderr.isatty():
                    print(f"\r{len(done)}/{len(tests)} {child.name:60.60}", end="", file=sys.stderr)
    return done


def is_alone(name: str, tests: dict[str, unittest.TestCase | list[str]]) -> bool:
    return isinstance(tests[name], list) and ALONE.search(name) is not None


def read_list(path: pathlib.Path | None) -> list[str]:
    """The first word of each line; # begins a comment."""
    if path is None:
        return []
    lines = path.read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--module", default="test_cuda")
    parser.add_argument("--all", action="store_true", help="every test there is must pass")
    parser.add_argument("--list", type=pathlib.Path, help="tests that must pass, a line each")
    parser.add_argument("--except", dest="exceptions", type=pathlib.Path,
                        help="tests of the list that must not pass, a line each, with the reason")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="tests with that word in their name")
    parser.add_argument("--json", type=pathlib.Path, help="write every outcome there")
    parser.add_argument("--fresh", action="store_true", help="a new interpreter for every test, for a real GPU")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no test after that")
    parser.add_argument("--may-skip", action="store_true", help="a test that is skipped did not fail")
    parser.add_argument("--most", type=int, help="run only so many of them, spread over all")
    parser.add_argument("--test", help=argparse.SUPPRESS)  # one, told to a descriptor
    parser.add_argument("--told-to", type=int, help=argparse.SUPPRESS)
    parser.add_argument("-v", "--verbose", action="store_true", help="print why tests failed")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    if arguments.test:
        run_fresh(arguments.folder.absolute(), arguments.module, arguments.test, arguments.told_to)
    listed = read_list(arguments.list) if arguments.list else None
    exceptions = read_list(arguments.exceptions)
    target = arguments.json.absolute() if arguments.json else None
    if arguments.fresh:
        command = [sys.executable, "-W", "ignore", str(pathlib.Path(__file__).absolute()),
                   str(arguments.folder.absolute()), "--module", arguments.module, "--test"]
        names = listed or names_in(arguments.folder, arguments.module)
        tests = {name: [*command, name] for name in sorted(names, key=lambda name: ALONE.search(name) is not None)}
    else:
        tests = import_tests(arguments.folder.absolute(), arguments.module)
    missing = [name for name in listed or [] if name not in tests]
    chosen = {name: test for name, test in tests.items()
              if arguments.only in name and (listed is None or name in listed)}
    if arguments.most and arguments.most < len(chosen):
        every = len(chosen) / arguments.most
        chosen = dict(list(chosen.items())[int(i * every)] for i in range(arguments.most))
    done = run_all(chosen, arguments.jobs, until)
    if target:
        target.write_text(json.dumps({name: {"outcome": o, "reason": r} for name, (o, r) in sorted(done.items())},
                                     indent=1))
    good = ("passed", "not run", "skipped") if arguments.may_skip else ("passed", "not run")
    failed = [name for name, (outcome, _) in done.items() if outcome not in good and name not in exceptions]
    surprises = [name for name, (outcome, _) in done.items() if outcome == "passed" and name in exceptions]
    for name in sorted(missing):
        print(f"MISSING {name}")
    for name in sorted(surprises):
        print(f"PASSED {name}, which is listed as an exception")
    for name in sorted(failed) if listed is not None or arguments.all or arguments.verbose else []:
        outcome, reason = done[name]
        lines = reason.strip().splitlines()
        print(f"{outcome.upper()} {name}: {lines[-1] if lines else ''}")
        if arguments.verbose:
            print(reason)
    outcomes = ["excepted" if name in exceptions and outcome not in ("passed", "not run") else outcome
                for name, (outcome, _) in done.items()]
    kinds = ["passed", "failed", "skipped", "excepted"] + ["not run"] * ("not run" in outcomes)
    print(", ".join(f"{outcomes.count(o)} {o}" for o in kinds))
    return 1 if (listed is not None or arguments.all) and (failed or missing or surprises) else 0


if __name__ == "__main__":
    sys.exit(main())
