"""The kit's own parts, without a GPU: limits, what is kept, what is compared, what is printed."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gpukit import commands, driver_parts, kernel_parts, report, table, torch_parts  # noqa: E402
from gpukit.kit import result_of  # noqa: E402
from gpukit.results import Results  # noqa: E402


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.log = commands.Log(self.folder / "log.txt")

    def run_python(self, code: str, limit_s: float = 20) -> commands.Ended:
        return commands.run([sys.executable, "-c", code], limit_s, os.environ, self.log)


class Commands(Scratch):
    def test_output_is_kept_and_given(self):
        ended = self.run_python("print('one'); import sys; print('two', file=sys.stderr)")
        self.assertEqual((ended.status, ended.why), ("ok", ""))
        self.assertIn("one", ended.output)
        self.assertIn("two", self.log.path.read_text())

    def test_exit_status_and_signal(self):
        self.assertEqual(self.run_python("raise SystemExit(3)")[:2], ("failed", "exit status 3"))
        self.assertEqual(self.run_python("import os; os.kill(os.getpid(), 11)")[:2], ("crashed", "ended by SIGSEGV"))
        self.assertEqual(commands.run([str(self.folder / "none")], 5, os.environ, self.log).status, "failed")

    def test_what_runs_too_long_is_ended_with_its_children(self):
        code = ("import subprocess, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
                "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
                "print(p.pid, flush=True); p.wait()")
        ended = self.run_python(code, limit_s=1)
        self.assertEqual((ended.status, ended.why), ("timed out", "ran longer than 1 s"))
        child = int(ended.output)
        for _ in range(100):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if pathlib.Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
                    time.sleep(0.05)
                    continue
            break
        else:
            self.fail("the program's child still runs")

    def test_too_much_output_is_ended(self):
        before, commands.LOG_BYTES = commands.LOG_BYTES, 100000
        try:
            ended = self.run_python("while True: print('x' * 1000)")
            self.assertEqual(ended.why, "wrote more than the log has room for")
        finally:
            commands.LOG_BYTES = before


class Kept(Scratch):
    def parts(self) -> dict:
        return json.loads((self.folder / "results.json").read_text())["parts"]

    def test_after_every_step(self):
        results = Results(self.folder, {"device": None})
        part = results.begin("driver")
        self.assertEqual(self.parts()["driver"]["status"], "not run")
        part.step("first", "ok")
        self.assertEqual([step["name"] for step in self.parts()["driver"]["steps"]], ["first"])
        part.step("second", "crashed", "ended by SIGSEGV")
        part.step("third", "differs", "1 of 2")
        part.end()
        self.assertEqual(self.parts()["driver"]["status"], "crashed")
        self.assertEqual(self.parts()["driver"]["why"], "ended by SIGSEGV")
        self.assertFalse(results.is_good)

    def test_skipped_steps_are_not_bad_and_none_is_not_good(self):
        results = Results(self.folder, {})
        good = results.begin("memory")
        good.step("a", "skipped", "no such device")
        good.step("b", "ok")
        good.step("c", "not run", "the time was used up")
        good.end()
        self.assertEqual(self.parts()["memory"]["status"], "ok")
        self.assertIn("1 of 3 steps were not run", self.parts()["memory"]["why"])
        self.assertTrue(results.is_good)
        nothing = results.begin("upstream")
        nothing.step("a", "skipped", "no text")
        nothing.end()
        self.assertEqual(self.parts()["upstream"]["status"], "skipped")
        self.assertFalse(results.is_good)

    def test_the_last_result_counts_unless_it_is_cut_off(self):
        self.assertEqual(result_of('RESULT {"a": 1}\nother\nRESULT {"a": 2}\n'), {"a": 2})
        self.assertEqual(result_of('RESULT {"a": 1}\nRESULT {"a": 2, "b'), {"a": 1})
        self.assertEqual(result_of("nothing"), {})

    def test_a_call_that_ended_the_process_was_not_answered(self):
        path = self.folder / "answers.jsonl"
        path.write_text('{"script": "s", "asked": "cuA", "simulated": "ok", "real": null}\n'
                        '{"script": "s", "asked": "cuA", "simulated": "ok", "real": "ok"}\n'
                        '{"script": "s", "asked": "cuB", "simulated": "ok", "real": null}\n'
                        '{"script": "s", "asked": "cuC", "simu')
        rows = driver_parts.read_answers(path)
        self.assertEqual([(row["asked"], row["real"]) for row in rows], [("cuA", "ok"), ("cuB", None)])
        self.assertEqual([driver_parts.is_different(row) for row in rows], [False, True])


class Losses(unittest.TestCase):
    def compare(self, native, expandable, gapless, **options):
        lists = {"native": native, "expandable": expandable, "gapless": gapless}
        return torch_parts.compare_losses({name: {"losses": [float(x).hex() for x in losses]}
                                           for name, losses in lists.items()}, **options)

    def test_equal_to_the_bit(self):
        self.assertEqual(self.compare([1, 2.5], [1, 2.5], [1, 2.5]), ("ok", "2 losses are equal to the bit"))
        one_bit = float.fromhex("0x1.4000000000001p+1")
        status, words = self.compare([1, 2.5], [1, 2.5], [1, one_bit])
        self.assertEqual(status, "differs")
        self.assertIn("loss 1 is 0x1.4000000000001p+1 with gapless, else 0x1.4000000000000p+1", words)

    def test_one_too_few(self):
        self.assertEqual(self.compare([1, 2], [1, 2], [1])[0], "differs")
        self.assertEqual(self.compare([1, 2], [1, 2], [])[0], "failed")

    def test_a_program_that_does_not_repeat_itself_proves_nothing(self):
        status, words = self.compare([1, 2], [1, 3], [1, 4])
        self.assertEqual(status, "ok")
        self.assertIn("not comparable", words)

    def test_zeros_are_no_losses(self):
        self.assertEqual(self.compare([0, 0], [0, 0], [0, 0])[0], "failed")
        self.assertEqual(self.compare([0, 0], [0, 0], [0, 0], simulated=True)[0], "ok")


class Mistakes(unittest.TestCase):
    """What a program with a planted mistake came to."""

    def test_what_is_said_counts(self) -> None:
        line = "gapless: check: 4 bytes were written behind the end of a block of 1000 bytes, ..."
        self.assertEqual(kernel_parts.judge("ok", line, True, "4 bytes were written behind"), ("ok", ""))
        self.assertEqual(kernel_parts.judge("ok", "", True, "4 bytes were written behind")[0], "failed")
        self.assertEqual(kernel_parts.judge("ok", line, True, "")[0], "failed")  # a false alarm
        self.assertEqual(kernel_parts.judge("ok", "sorted: [1]", True, ""), ("ok", ""))

    def test_a_fence_has_to_fault(self) -> None:
        self.assertEqual(kernel_parts.judge("failed", "an illegal memory access", False, "illegal"), ("ok", ""))
        self.assertEqual(kernel_parts.judge("ok", "illegal", False, "illegal")[0], "failed")
        self.assertEqual(kernel_parts.judge("timed out", "", True, "")[0], "timed out")

    def test_times_are_ratios(self) -> None:
        rows = [{"type": "float16", "ours_ns": 2e6, "of_copy": 0.81, "eager_ns": 9e6}, {"type": "bfloat16"}]
        self.assertIn("81 % of a copy's bandwidth; times ours: eager 4.50", kernel_parts.summary({"rows": rows}, {}))
        self.assertEqual(kernel_parts.summary({}, {}), "results are right")


class Tables(unittest.TestCase):
    def test_no_line_is_wider_than_a_terminal(self):
        text = table.table(("a", "what"), [("x" * 20, "word " * 40), ("y", "z" * 200)])
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertEqual(text.count("z"), 200)

    def test_a_run_that_went_wrong_is_told(self):
        step = {"name": "mapping", "status": "crashed", "why": "ended by SIGSEGV", "seconds": 1.0, "found": {}}
        part = {"status": "crashed", "why": "ended by SIGSEGV in cuMemMap, a page", "seconds": 2.0,
                "summary": "1 of 2 differ", "steps": [step],
                "differences": [{"script": "mapping", "asked": "cuMemMap, a page", "simulated": "CUDA_SUCCESS",
                                 "real": "(never answered)", "same_kind": False}]}
        text = report.text({"parts": {"driver": part}})
        self.assertIn("mapping: cuMemMap, a page\n    (never answered); simulated: ok", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)


class Whole(Scratch):
    """`run` as it is started, over programs that stand in for the kit's."""

    def setUp(self):
        super().setUp()
        self.kit, self.out = self.folder / "kit", self.folder / "out"
        shutil.copytree(HERE, self.kit, ignore=shutil.ignore_patterns("__pycache__", "test_*", "programs"))
        for name in ("bin", "programs"):
            (self.kit / name).mkdir()
        facts = self.kit / "programs" / "facts.py"
        facts.write_text("print('RESULT {\"name\": \"GPU of paper\", \"total_bytes\": 4}')\n")
        self.gpu_test("sleep 60")

    def gpu_test(self, does: str) -> None:
        path = self.kit / "bin" / "gpu_test"
        path.write_text('#!/bin/sh\ncase "$*" in\n*list_tests*) printf "Gpu.\\n  One\\n  Two\\n";;\n'
                        f"*) {does};;\nesac\n")
        path.chmod(0o755)

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, self.kit / "run", "--out", self.out, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def results(self) -> dict:
        return json.loads((self.out / "results.json").read_text())

    def test_what_was_found_is_kept_when_a_later_part_takes_too_long(self):
        child = self.start("--only", "facts,memory", "--budget", "10")
        text, _ = child.communicate(timeout=120)
        self.assertEqual(child.returncode, 1, text)
        parts = self.results()["parts"]
        self.assertEqual(self.results()["device"], "GPU of paper")
        self.assertEqual((parts["facts"]["status"], parts["memory"]["status"]), ("ok", "timed out"))
        self.assertIn("GPU of paper", text)
        self.assertIn("timed out", text)

    def test_a_run_that_is_ended_leaves_its_table(self):
        child = self.start("--only", "facts,memory,costs")
        for _ in range(1200):
            if self.out.joinpath("log.txt").exists() and "--gtest_filter=Gpu.One" in (self.out / "log.txt").read_text():
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        text, _ = child.communicate(timeout=120)
        self.assertEqual(child.returncode, 1, text)
        parts = self.results()["parts"]
        self.assertEqual(list(parts), ["facts", "memory"])
        self.assertIn("ended by SIGTERM", parts["memory"]["why"])
        self.assertIn("GPU of paper", (self.out / "table.txt").read_text())

    def test_what_comes_home_is_few_files_with_plain_names(self):
        self.gpu_test("exit 0")
        self.start("--only", "facts,memory", "--budget", "20").communicate(timeout=120)
        names = sorted(path.relative_to(self.out).as_posix() for path in self.out.rglob("*"))
        self.assertEqual(names, ["log.txt", "results.json", "table.txt"])

    def test_wrong_words_are_named(self):
        child = self.start("--only", "facts,nonsense")
        self.assertIn("there is no part nonsense", child.communicate(timeout=120)[0])
        self.assertEqual(child.returncode, 2)


if __name__ == "__main__":
    unittest.main()
