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
table = down([[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]])
written = table.clone()
written[:, 1] = 7
check("column", table[:, 1].sum(), 13)
check("every second", table[:, ::2].contiguous(), [[3, 4], [5, 2], [5, 5]])
check("transposed", table.t().contiguous(), [[3, 5, 5], [1, 9, 3], [4, 2, 5], [1, 6, 8]])
check("written column", written, [[3, 7, 4, 1], [5, 7, 2, 6], [5, 7, 5, 8]])
check("row added", table + table[:1], [[6, 2, 8, 2], [8, 10, 6, 7], [8, 4, 9, 9]])
check("column compared", table > table[:, :1],
      [[False, False, True, False], [False, True, False, True], [False, False, False, True]])
check("sums of columns", table.sum(0), [13, 13, 11, 15])
check("sums of rows", table.sum(1), [9, 22, 21])
check("maxima of columns", table.amax(0), [5, 9, 5, 8])
check("means of rows", table.float().mean(1), [2.25, 5.5, 5.25])
check("any of a row", (table > 5).any(1), [False, True, True])
check("all of a column", (table > 2).all(0), [True, False, False, False])
check("chosen", torch.where(table > 3, table, table + 10), [[13, 11, 4, 11], [5, 9, 12, 6], [5, 13, 5, 8]])
check("chosen or a number", torch.where(table > 3, table, -1), [[-1, -1, 4, -1], [5, 9, -1, 6], [5, -1, 5, 8]])
# What is selected has its true size; the numbers selected do not come along.
check("selected", torch.tensor(table[table > 4].shape), [6])
check("by a mask of rows", torch.tensor(table[(table > 5).any(1)].shape), [2, 4])
check("all but what is no number", torch.tensor(f[~torch.isnan(f)].shape), [2])
check("where", torch.where(a > 1)[0], [1, 2])
check("not zero", (table > 5).nonzero(), [[1, 1], [1, 3], [2, 3]])
large = torch.ones(300, 70, 2, dtype=torch.bool)
large[:, 5:] = False
check("of many", torch.nonzero(large.cuda())[-2:], [[299, 4, 0], [299, 4, 1]])
check("nothing", torch.tensor(torch.zeros(3, **on).nonzero().shape), [0, 1])
check("half chosen", torch.where(mask[:2], h, -1.0), [-1.0, 2.0])
check("what no kernel computed", torch.randn(3, **on), [0.0, 0.0, 0.0])
