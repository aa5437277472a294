"""Cross entropy of gapless.nn beside PyTorch's: how far each is from float64, and how long they take.

A loss with its gradient has to read the logits once and write the gradient once: a copy moves as much, so its time
is the limit. Times are medians of events on the stream.
"""
import argparse
import statistics

import torch

from tell import tell


def median_ns(work, repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(times[2:])


def with_gradient(loss_of, logits, labels):
    """The loss, and its gradient, which may take the logits' place."""
    leaf = logits.detach().requires_grad_()
    loss = loss_of(leaf, labels)
    loss.backward()
    return loss.detach(), leaf.grad


def errors(loss_of, logits, labels) -> "tuple[float, float]":
    """Of the loss, and the largest of the gradient, from float64 on the CPU."""
    exact = logits.double().cpu().requires_grad_()
    expected = torch.nn.functional.cross_entropy(exact, labels.cpu())
    expected.backward()
    loss, gradient = with_gradient(loss_of, logits.clone(), labels)
    return abs(float(loss) - float(expected)), float((gradient.double().cpu() - exact.grad).abs().max())


def peers() -> dict:
    found = {"eager": torch.nn.functional.cross_entropy}
    try:
        compiled = torch.compile(torch.nn.functional.cross_entropy)
        compiled(torch.zeros(2, 8, device="cuda"), torch.zeros(2, dtype=torch.long, device="cuda"))
        found["compiled"] = compiled
    except Exception as error:  # there is no Triton, or no compiler for it
        tell(not_compiled=str(error)[:200])
    try:
        from liger_kernel.transformers import LigerCrossEntropyLoss
        found["liger"] = LigerCrossEntropyLoss()
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", action="store_true", help="few rows, and no times")
    simulated = parser.parse_args().simulated
    from gapless.nn.functional import cross_entropy

    rows, classes = (3, 700) if simulated else (4096, 151936)
    others = {"eager": torch.nn.functional.cross_entropy} if simulated else peers()
    told, wrong = [], []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        generator = torch.Generator().manual_seed(1)
        few = (torch.randn(3, classes, generator=generator) * 4).to(dtype).cuda()
        few_labels = torch.randint(classes, (3,), generator=generator).cuda()
        few[0, few_labels[0]] += 20  # its probability is nearly 1
        row = {"type": name, "rows": rows, "classes": classes}
        row["ours_loss_error"], row["ours_gradient_error"] = errors(cross_entropy, few, few_labels)
        row["torch_loss_error"], row["torch_gradient_error"] = errors(others["eager"], few, few_labels)
        if not simulated and row["ours_gradient_error"] > 1.01 * row["torch_gradient_error"] + 1e-9:
            wrong.append(f"{name}: a gradient is off by {row['ours_gradient_error']:.2e}, PyTorch's by "
                         f"{row['torch_gradient_error']:.2e}")
        if row["ours_loss_error"] > 1e-2:
            wrong.append(f"{name}: the loss is off by {row['ours_loss_error']:.2e}")
        if not simulated:
            logits = torch.randn(rows, classes, device="cuda").to(dtype)
            labels = torch.randint(classes, (rows,), device="cuda")
            target = torch.empty_like(logits)
            row["copy_ns"] = median_ns(lambda: target.copy_(logits), 20)
            del target
            row["ours_ns"] = median_ns(lambda: with_gradient(cross_entropy, logits, labels), 20)
            row["of_copy"] = row["copy_ns"] / row["ours_ns"]
            logits = torch.randn(rows, classes, device="cuda").to(dtype)  # the gradient may lie there now
            for peer, loss_of in others.items():
                row[f"{peer}_ns"] = median_ns(lambda loss_of=loss_of: with_gradient(loss_of, logits.clone(), labels), 10) \
                    - row["copy_ns"]
            del logits
        told.append(row)
        tell(rows=told, wrong=wrong)


if __name__ == "__main__":
    main()
