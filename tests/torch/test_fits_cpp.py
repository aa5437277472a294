"""gapless fits of a program in C++: there is no Python to tell lines, steps or what memory is for."""
import json
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from conftest import GAPLESS

pytestmark = pytest.mark.one_torch

MiB = 1 << 20

IN_CPP = """
#include <stdint.h>
typedef struct Tensor* AtenTensorHandle;
extern "C" {
int32_t aoti_torch_empty_strided(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensorHandle*);
int32_t aoti_torch_device_type_cuda(void);
int32_t aoti_torch_dtype_float32(void);
}
int main() {
  const int64_t sizes[] = {64 << 18};
  const int64_t strides[] = {1};
  AtenTensorHandle tensor;
  for (int i = 0; i < 2; ++i) {
    const int32_t error = aoti_torch_empty_strided(1, sizes, strides, aoti_torch_dtype_float32(),
                                                   aoti_torch_device_type_cuda(), 0, &tensor);
    if (error != 0) return 1;
  }
  return 0;
}
"""


@pytest.mark.parametrize("allocator", ["native", "gapless"])
def test_a_program_in_cpp_has_lines_and_no_steps(tmp_path, allocator):
    (tmp_path / "program.cc").write_text(IN_CPP)
    folder = Path(sysconfig.get_path("purelib")) / "torch" / "lib"
    subprocess.run(["c++", "-g", "program.cc", "-o", "program", f"-L{folder}", "-Wl,--no-as-needed", "-ltorch_cpu", "-ltorch_cuda",
                    f"-Wl,-rpath,{folder}", "-Wl,--allow-shlib-undefined"], cwd=tmp_path, check=True)
    for size, status, at, held in (("1GiB", 0, "its peak", 128), ("200MiB", 1, "its end", 64)):
        done = subprocess.run([GAPLESS, "fits", "--gpu", size, "--context", "100MiB", "--allocator", allocator, "--json",
                               "rows.json", "--", "./program"], cwd=tmp_path, capture_output=True, text=True, check=False)
        (row,) = json.loads((tmp_path / "rows.json").read_text())
        assert row["fits"] is (status == 0) and row["memory"]["allocated_bytes"] == held * MiB, done.stdout + done.stderr
        assert row["steps"] is None and row["memory"]["step"] is None and row["memory_at_peak"]["step"] is None
        (place,) = row["memory"]["places"]
        assert (place["line"], place["called"]) == ("program.cc:14", "aten::empty_strided")
        assert status == 0 or row["out_of_memory"]["line"] == "program.cc:14"
        assert re.search(rf"^at +{at}$", done.stdout, re.M) and "step" not in done.stdout
