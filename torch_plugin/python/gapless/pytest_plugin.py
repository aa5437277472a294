"""A pytest plugin: tests of GPU memory on machines without a GPU.

    @pytest.mark.gpu_memory("16GiB", allocator="gapless")
    def test_training_fits(): ...

    this pytest       the test's place in the run, its reports, its peak against the baseline
      gapless dryrun    a simulated GPU
        pytest test.py::test_training_fits    the test itself, fixtures and all, in a process of its own

The peaks that tests are held to lie beside them: test.py's in test.gpu_memory.json. `pytest --gpu-memory-update` writes
them anew.
"""
from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import pytest

from . import _dryrun
from ._call_sites import size
from ._library import GaplessError

IN_TEST = "GAPLESS_PYTEST"  # set in the child: where its reports go
_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")
_MARK = ('gpu_memory(gpu, *, allocator="native", context=None, tolerance=None, timeout=600): run the test on a simulated '
         "GPU (16GiB, RTX 4090, several with commas), and fail it where it does not fit or its peak grows above its baseline")


class _Marked:
    """The mark's arguments."""

    def __init__(self, gpu: str, *, allocator: str = "native", context: str | None = None, tolerance: float | str | None = None,
                 timeout: float = 600):
        self.gpu, self.allocator, self.context, self.timeout = gpu, allocator, context, timeout
        self.tolerance = None if tolerance is None else share(tolerance)

    @property
    def key(self) -> str:
        return f"{self.gpu} {self.allocator}" + (f" context {self.context}" if self.context else "")


def share(text: float | str) -> float:
    """"2 %" and 0.02 are 0.02. Raises ValueError."""
    percent = isinstance(text, str) and text.strip().endswith("%")
    value = float(text.strip().removesuffix("%")) / 100 if isinstance(text, str) and percent else float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r}: expected a share such as 0.02 or 2%")
    return value


# --- options ----------------------------------------------------------------------------------------------------

def _tolerance(text: str) -> float:
    import argparse
    try:
        return share(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("gpu_memory", "GPU memory, on a simulated GPU (gapless)")
    group.addoption("--gpu-memory-update", action="store_true",
                    help="write the peaks of the tests that run into their baselines, test.gpu_memory.json beside test.py")
    group.addoption("--gpu-memory-tolerance", metavar="SHARE", type=_tolerance, default=None,
                    help="how far a peak may grow above its baseline: 0.02 or 2%% (the ini file's gpu_memory_tolerance, 1%%)")
    parser.addini("gpu_memory_tolerance", "how far a peak of GPU memory may grow above its baseline", default="1%")
    parser.addini("gpu_memory_args", "more arguments of pytest for the processes that tests on simulated GPUs run in", type="args",
                  default=[])


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", _MARK)
    if IN_TEST in os.environ:
        config.pluginmanager.register(_InTest(config, json.loads(os.environ[IN_TEST])), "gapless-in-test")
    else:
        config.pluginmanager.register(_Runs(config), "gapless-runs")


# --- in the child: the test itself ------------------------------------------------------------------------------

class _InTest:
    """Tells its parent what became of the test."""

    def __init__(self, config: Any, told: dict[str, Any]):
        self._config = config
        self._file = open(told["reports"], "a", encoding="utf-8")  # noqa: SIM115: it is open as long as pytest runs
        for name, value in told["options"].items():
            setattr(config.option, name, value)

    def pytest_runtest_logreport(self, report: Any) -> None:
        told = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._file.write(json.dumps(told, default=str) + "\n")
        self._file.flush()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._file.write(json.dumps({"$collect": str(report.longrepr)}) + "\n")
            self._file.flush()


# --- in the parent ----------------------------------------------------------------------------------------------

def _marked(item: Any) -> _Marked | None:
    mark = item.get_closest_marker("gpu_memory")
    return None if mark is None else _Marked(*mark.args, **mark.kwargs)


def _own_options(config: Any) -> dict[str, Any]:
    """Options of the tests' own (a conftest's parser.addoption), which decide what a test does."""
    own = getattr(getattr(config, "_parser", None), "_anonymous", None)
    names = [option.dest for option in getattr(own, "options", ())]
    values = {name: getattr(config.option, name) for name in names if hasattr(config.option, name)}
    return {name: value for name, value in values.items() if isinstance(value, (str, int, float, bool, list, type(None)))}


def _words(item: Any) -> list[str]:
    """pytest for that test alone, set up as here."""
    config = item.config
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        words += ["-c", str(config.inipath)]
    for override in config.getoption("override_ini", None) or ():
        words += ["-o", override]
    words += ["-o", f"gpu_memory_args={' '.join(config.getini('gpu_memory_args'))}"] * bool(config.getini("gpu_memory_args"))
    if (mode := config.getoption("importmode", None)) is not None:
        words += ["--import-mode", mode]
    if config.pluginmanager.hasplugin("xdist"):
        words += ["-n0"]
    named = [name for name in config.getoption("plugins", None) or () if name != "no:cacheprovider"]
    for name in named:
        words += ["-p", name]
    words += config.getini("gpu_memory_args")
    path, separator, rest = item.nodeid.partition("::")
    return [*words, str(config.rootpath / path) + separator + rest]


class _Runs:
    """Runs marked tests in children, and keeps what they took."""

    def __init__(self, config: Any):
        self._config = config
        self._is_worker = hasattr(config, "workerinput")  # of pytest-xdist: its controller writes and prints
        self._took: list[dict[str, Any]] = []

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool | None:
        try:
            marked = _marked(item)
        except (TypeError, ValueError) as error:
            marked = None
            wrong = f"pytest.mark.gpu_memory: {error}"
        else:
            if marked is None:
                return None
            wrong = ""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = [_failure(item, wrong)] if marked is None else self._reports(item, marked)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _reports(self, item: Any, marked: _Marked) -> list[Any]:
        with tempfile.TemporaryDirectory(prefix="gapless-") as folder:
            told = pathlib.Path(folder, "reports")
            environment = {IN_TEST: json.dumps({"reports": str(told), "options": _own_options(self._config)})}
            options = ["--estimates", "--gpu", marked.gpu, "--allocator", marked.allocator, *(["--context", marked.context] if marked.context else [])]
            try:
                baseline = _baseline(_file_of(item)).get(_name_of(item), {}).get(marked.key)
                done = _dryrun.run("dryrun", options, _words(item), timeout=marked.timeout, environment=environment)
            except GaplessError as error:
                return [_failure(item, str(error))]
            except Exception as error:  # TimeoutExpired
                return [_failure(item, f"on a simulated GPU ({marked.key}): {error}")]
            entries = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
        if collect := next((entry["$collect"] for entry in entries if "$collect" in entry), None):
            return [_failure(item, collect)]
        reports = [self._config.hook.pytest_report_from_serializable(config=self._config, data=_as_told(entry)) for entry in entries]
        reports = [report for report in reports if report is not None and report.nodeid == item.nodeid]
        call = next((report for report in reports if report.when == "call"), None)
        if call is None:
            if any(report.failed or report.skipped for report in reports):
                return reports
            return [_failure(item, f"on a simulated GPU ({marked.key}) the test did not come to its end:\n"
                                   f"{_dryrun.last_lines(done.output, 40)}")]
        if not call.skipped:
            self._judge(item, marked, call, done, baseline)
        return reports

    def _judge(self, item: Any, marked: _Marked, call: Any, done: _dryrun.Finished, baseline: dict[str, int] | None) -> None:
        """A passed test fails where it did not fit, or took more than before; a failed one tells what it took."""
        rows = done.found or []
        lines = [f"on a simulated GPU ({marked.key}):"]
        wrong = "" if rows else "it used no GPU: " + _dryrun.last_lines(done.output, 1)
        for row in rows:
            lines.append(f"  GPU {row['device']}: {size(row['peak_allocated_bytes'] or 0)} allocated, "
                         f"{size(row['peak_reserved_bytes'] or 0)} reserved, {size(row['peak_used_bytes'])} of "
                         f"{size(row['total_bytes'])} in use at most")
            if (row["fits"] is not True or row["caught_out_of_memory"]) and not call.failed:
                wrong = wrong or f"it does not plainly fit: {row['verdict']}: {row['reason']}"
            elif not call.failed and (estimate := _dryrun.estimate(row)):
                wrong = wrong or f"whether it fits is not known: {estimate}"
            elif row["reason"]:
                lines.append(f"  {row['verdict']}: {row['reason']}")
        # Without PyTorch nobody knows what of it an allocator keeps.
        took = {name: max((int(row[name] or row["peak_used_bytes"]) for row in rows), default=0) for name in _PEAKS}
        if baseline and rows and not self._config.getoption("gpu_memory_update"):
            tolerance = next(value for value in (self._config.getoption("gpu_memory_tolerance"), marked.tolerance,
                                                 share(self._config.getini("gpu_memory_tolerance"))) if value is not None)
            for name in _PEAKS:
                grown = took[name] / baseline[name] - 1 if baseline.get(name) else 0
                what = f"{size(took[name])} {name.split('_')[1]}, {100 * grown:+.2f} % against the baseline of {size(baseline.get(name, 0))}"
                lines.append(f"  {what}")
                if grown > tolerance and not call.failed:
                    wrong = wrong or (f"its peak has grown: {what} ({100 * tolerance:g} % are tolerated; --gpu-memory-update "
                                      "takes it as the new baseline)")
        if wrong:
            call.outcome = "failed"
            call.longrepr = "\n".join([f"{item.name}: {wrong}", *lines])
        else:
            call.sections.append(("GPU memory", "\n".join(lines)))
        call.user_properties.append(("gpu_memory", {"file": str(_file_of(item)), "test": _name_of(item), "key": marked.key,
                                                     "fits": not wrong and not call.failed, "has_baseline": bool(baseline), **took}))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not self._is_worker and report.when == "call":
            self._took += [value for name, value in report.user_properties if name == "gpu_memory"]

    def pytest_sessionfinish(self, session: Any) -> None:
        if self._is_worker or not self._config.getoption("gpu_memory_update"):
            return
        for file in sorted({took["file"] for took in self._took}):
            path = pathlib.Path(file)
            all_of = _baseline(path)
            for took in self._took:
                if took["file"] == file and took["fits"]:
                    all_of.setdefault(took["test"], {})[took["key"]] = {name: took[name] for name in _PEAKS}
            new = path.with_name(f".{path.name}.{os.getpid()}")
            new.write_text(json.dumps(all_of, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            os.replace(new, path)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._is_worker or not self._took:
            return
        terminalreporter.section("GPU memory")
        for took in self._took:
            note = "" if took["fits"] else ", failed"
            if took["fits"] and not took["has_baseline"]:
                note = ", taken as its baseline" if self._config.getoption("gpu_memory_update") else ", no baseline (--gpu-memory-update)"
            terminalreporter.line(f"{took['test']} ({took['key']}): {size(took['peak_allocated_bytes'])} allocated, "
                                  f"{size(took['peak_reserved_bytes'])} reserved{note}")


# --- the baselines ----------------------------------------------------------------------------------------------

def _file_of(item: Any) -> pathlib.Path:
    """test_x.py's are in test_x.gpu_memory.json."""
    return pathlib.Path(item.path).with_suffix(".gpu_memory.json")


def _name_of(item: Any) -> str:
    """"TestClass::test_name[parameter]"."""
    return str(item.nodeid).partition("::")[2]


def _baseline(path: pathlib.Path) -> dict[str, dict[str, dict[str, int]]]:
    """{test: {GPU and allocator: peaks}}. Raises GaplessError where the file holds something else."""
    if not path.exists():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GaplessError(f"{path}: {error}") from error
    if not isinstance(read, dict) or not all(
            isinstance(tests, dict) and all(isinstance(peaks, dict) and all(isinstance(peak, int) for peak in peaks.values())
                                            for peaks in tests.values()) for tests in read.values()):
        raise GaplessError(f"{path}: not the baselines of tests")
    return read


def _as_told(entry: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; pytest asks for them."""
    return {name: tuple(value) if name in ("location", "longrepr") and isinstance(value, list) else value
            for name, value in entry.items()}


def _failure(item: Any, text: str) -> Any:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", text, "call")
