"""Numbers that programs steer by are computed for real, where their inputs are known."""
import torch


def check(name, tensor, wanted):
    found = tensor.tolist()
    print(f"{name}: {'ok' if found == wanted else f'{found}, not {wanted}'}")


def down(*numbers, dtype=None):
    return torch.tensor(numbers if len(numbers) != 1 else numbers[0], dtype=dtype).cuda()


on = {"device": "cuda"}
a, five, six = down(1, 2, 3), down(5), down(6)
f, h, mask = down(1.0, 2.0), down(1.0, 2.0).half(), down(1, 2, 3) > 1

check("comparisons", torch.stack([x.cpu() for x in (six > five, six < five, five >= five, six <= five)]),
      [True, False, True, False])
check("with a number", a <= 2, [True, True, False])
check("equal", a == 2, [False, True, False])
check("not equal", a != 2, [True, False, True])
check("half compared", h > 1, [False, True])
check("half equal", h == 2, [False, True])
check("sum of two", a + a, [2, 4, 6])
check("plus a number", a + 1, [2, 3, 4])
check("from a number", 7 - five, 2)
check("alpha", torch.sub(a, a, alpha=3), [-2, -4, -6])
check("times", f * 2.5, [2.5, 5.0])
check("squares", a * a, [1, 4, 9])
check("half sums", h + h, [2.0, 4.0])
check("half times", h * 3, [3.0, 6.0])
check("sum", a.sum(), 6)
check("float sum", f.sum(), 3.0)
check("half sum", h.sum(), 3.0)
check("bfloat sum", down(3.0, 4.0, dtype=torch.bfloat16).sum(), 7.0)
check("int sum", down(3, 4, dtype=torch.int32).sum(), 7)
check("double sum", down(3.0, 4.0, dtype=torch.float64).sum(), 7.0)
check("table sum", torch.arange(12).view(3, 4).cuda().sum(), 66)
check("long sum", torch.arange(4000).cuda().sum(), 7998000)
check("mean", f.mean(), 1.5)
check("maximum", a.max(), 3)
check("minimum", a.min(), 1)
check("byte maximum", down(3, 4, dtype=torch.uint8).max(), 4)
check("all", mask.all(), False)
check("any", mask.any(), True)
check("count", mask.sum(), 2)
check("inverse", ~mask, [True, False, False])
check("both", mask & (a < 3), [False, True, False])
check("to float", a.float(), [1.0, 2.0, 3.0])
check("to long", f.long(), [1, 2])
check("ones", torch.ones(3, **on), [1.0, 1.0, 1.0])
check("full", torch.full((2,), 7, **on), [7, 7])
check("half full", torch.full((2,), 2.5, dtype=torch.float16, **on), [2.5, 2.5])
check("flags", torch.full((2,), True, **on), [True, True])
check("what no kernel computed", torch.randn(3, **on), [0.0, 0.0, 0.0])
