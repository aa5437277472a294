"""Python processes that have imported torch already.

    test ---- request ----> server: python, torch imported, idle
                              |  fork
                              '--> child: the environment's last variables, then the program
         <--- exit status ----

Importing torch takes seconds, most programs of these tests take less. A server is made for every
environment that the import may depend on; what the simulated GPU asks for (SIMGPU_GPUS ...) it
reads when it is used first, so that is the child's own. A child ends as any Python does, with
everything that runs at exit.
"""
import collections
import gc
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

# What nothing looks at before a GPU is used.
_LATE = ("SIMGPU_GPUS", "SIMGPU_CONTEXT", "SIMGPU_SHARED", "SIMGPU_REPORT_DIR", "SIMGPU_WAIT", "SIMGPU_LOG",
         "SIMGPU_STRICT", "CUDA_VISIBLE_DEVICES", "PYTEST_CURRENT_TEST")
_SERVERS = 3  # each keeps some 500 MiB


class Server:
    def __init__(self, environment: dict[str, str]):
        self._process = subprocess.Popen([sys.executable, "-W", "ignore", __file__], env=environment, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, code: str, late: dict[str, str], timeout: float) -> subprocess.CompletedProcess:
        """As subprocess.run([python, "-c", code], capture_output=True) would have it."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = pathlib.Path(folder, "out"), pathlib.Path(folder, "err")
            request = {"code": code, "late": late, "out": str(out), "err": str(err), "folder": os.getcwd()}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            child = int(self._answer())
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                os.kill(child, 9)
                self._answer()
                raise subprocess.TimeoutExpired(code, timeout, out.read_bytes(), err.read_bytes())
            status = int(self._answer())
            return subprocess.CompletedProcess(code, status, out.read_text(), err.read_text())

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"importing torch failed: exit status {self._process.wait()}")
        return line

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class WarmPython:
    """The servers of a test session."""

    def __init__(self):
        self._servers: collections.OrderedDict[tuple, Server] = collections.OrderedDict()

    def run(self, code: str, environment: dict[str, str], timeout: float) -> subprocess.CompletedProcess:
        early = {name: value for name, value in environment.items() if name not in _LATE}
        late = {name: value for name, value in environment.items() if name in _LATE}
        key = tuple(sorted(early.items()))
        if key not in self._servers:
            if len(self._servers) == _SERVERS:
                self._servers.popitem(last=False)[1].close()
            self._servers[key] = Server(early)
        self._servers.move_to_end(key)
        try:
            return self._servers[key].run(code, late, timeout)
        except (RuntimeError, BrokenPipeError):  # the server is gone: the next test gets another
            del self._servers[key]
            raise

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


def serve() -> None:
    """Answers requests until there are none; returns in a child, which is to go on as that program."""
    gc.freeze()  # a child does not look through all of torch's objects at its end
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            return become(request)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit(0)


def become(request: dict) -> None:
    for name, descriptor, flags in (("/dev/null", 0, os.O_RDONLY), (request["out"], 1, os.O_WRONLY | os.O_CREAT),
                                    (request["err"], 2, os.O_WRONLY | os.O_CREAT)):
        opened = os.open(name, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request["folder"])
    os.environ.update(request["late"])
    sys.argv = ["-c"]
    global program
    program = compile(request["code"], "<string>", "exec")


if __name__ == "__main__":
    import types

    sys.path[0] = ""  # as with python -c
    import torch  # noqa: F401

    serve()
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(program, sys.modules["__main__"].__dict__)
