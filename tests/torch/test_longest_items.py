"""What of a program's data was fed, and whether the longest of it was; --worst-case feeds that."""
import random

import pytest

pytestmark = pytest.mark.one_torch

CORPUS = """
import random, sys, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
LENGTHS = [(random.Random(i).randint(10, 100), random.Random(-i).randint(5, 60)) for i in range(400)]
LENGTHS[77], LENGTHS[99] = (512, 9), (11, 128)
class Corpus(Dataset):
    def __len__(self): return len(LENGTHS)
    def __getitem__(self, i):
        random.random()
        return {"source": [1] * LENGTHS[i][0], "target": torch.ones(LENGTHS[i][1]), "number": i}
class Stream(IterableDataset):
    def __iter__(self): return iter([Corpus()[i] for i in range(40)])
def padded(items):
    return [torch.nn.utils.rnn.pad_sequence([torch.as_tensor(item[name]) for item in items], batch_first=True)
            for name in ("source", "target")]
x = torch.zeros(1000, device="cuda")
torch.manual_seed(0)
random.seed(0)
kind = sys.argv[1]
data = Stream() if kind == "stream" else Corpus()
loader = DataLoader(data, batch_size=4, shuffle=kind == "shuffled", collate_fn=padded, num_workers=int(sys.argv[2]))
seen = []
for source, target in loader:
    seen.append((source.shape[1], target.shape[1]))
    if len(seen) == 7: break
print(seen, random.random(), file=open("seen", "w"))
"""


LENGTHS = [(random.Random(i).randint(10, 100), random.Random(-i).randint(5, 60)) for i in range(400)]
LENGTHS[77], LENGTHS[99] = (512, 9), (11, 128)


def seen_by(tmp_path):
    text = (tmp_path / "seen").read_text()
    return eval(text[:text.rindex("]") + 1]), float(text[text.rindex("]") + 1:])  # noqa: S307


def test_the_longest_items_are_fed(fits, tmp_path):
    """Source and target at once, though no item has both; the others are those of a plain run."""
    said = fits(CORPUS, "--gpu", "1GiB", arguments=("shuffled", "0"))
    plain, chance = seen_by(tmp_path)
    assert "longest were not among them: source" in said.text
    assert "of 512, target" in said.out and "of 128 (--worst-case feeds them)" in said.text
    (told,) = said.row["data"]
    assert told["lengths"]["source"] == {"seen": max(source for source, _ in plain), "longest": 512}
    assert (told["batches"], told["of_batches"]) == (7, 100)
    for workers in "0", "2":
        said = fits(CORPUS, "--gpu", "1GiB", "--worst-case", arguments=("shuffled", workers))
        fed, chance_then = seen_by(tmp_path)
        assert fed[0] == fed[6] == (512, 128) and fed[3][0] == 512
        assert [fed[i] for i in (1, 2, 4, 5)] == [plain[i] for i in (1, 2, 4, 5)]
        # To look at all items drew nothing from the program's chance; the longest were asked as often as others.
        assert (chance_then == chance) == (workers == "0")
        assert "every third was of the longest items (source 512, target 128)" in said.text


IMAGES = """
import torch; torch.manual_seed(0)
from torch.utils.data import DataLoader
loader = DataLoader([(torch.rand(3, 8, 8), i % 3) for i in range(12)], batch_size=4)
for epoch in range(3):
    for image, label in loader:
        image.cuda()
"""


GRAPHS = """
import sys, torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
graphs = [{"x": torch.ones(10 + n, 4), "name": torch.ones(3)} for n in range(40)]
def padded(items):
    return {"x": torch.nn.utils.rnn.pad_sequence([item["x"] for item in items], batch_first=True)}
def cut(items):
    return {"x": torch.stack([item["x"][:10] for item in items])}
def joined(items):
    return {name: torch.cat([item[name] for item in items]) for name in items[0]}
x = torch.zeros(1000, device="cuda")
for batch in DataLoader(graphs, 4, shuffle=sys.argv[1] != "in-order", num_workers=int(sys.argv[2]),
                        collate_fn={"padded": padded, "cut": cut}.get(sys.argv[1], joined)):
    print(batch["x"].numel())
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.thorough(but=1)
def test_what_is_joined_and_not_padded_may_be_more_in_another_order(fits, workers):
    most = 4 * (46 + 47 + 48 + 49)
    said = fits(GRAPHS, "--gpu", "1GiB", arguments=("joined", workers))
    (told,) = said.row["data"]
    largest = told["could_meet"]["x"]["largest"]
    assert told["could_meet"] == {"x": {"largest": largest, "could_be": most}} and largest < most
    assert f"in another order a batch could have x {most}, not {largest} (--worst-case feeds" in said.text
    for arguments in ("padded", workers), ("cut", workers), ("in-order", workers):
        said = fits(GRAPHS, "--gpu", "1GiB", arguments=arguments)
        assert said.row["data"][0]["could_meet"] == {} and "in another order" not in said.text
    said = fits(GRAPHS, "--gpu", "1GiB", "--worst-case", arguments=("joined", workers))
    assert said.row["data"][0]["could_meet"] == {} and "every third was of the longest items" in said.text


def test_several_epochs_of_items_of_one_size_are_told_as_that(fits):
    """ "9 of 3 batches were fed, with the longest among them (0 192)", it said once."""
    said = fits(IMAGES, "--gpu", "1GiB")
    assert "list: 9 batches were fed, of 3 an epoch; all items are of one size" in said.text
    assert said.row["data"][0]["lengths"] == {"[0]": {"seen": 192, "longest": 192}}


def test_many_loaders_of_which_nothing_larger_could_come_are_counted(fits):
    """As those of a search for the largest batch."""
    said = fits("""
import torch
from torch.utils.data import DataLoader, TensorDataset
for batch in range(2, 8):
    for x, in DataLoader(TensorDataset(torch.zeros(64, 3)), batch_size=batch):
        x.cuda()
""", "--gpu", "1GiB")
    assert len(said.row["data"]) == 6 and said.out.count("batches were fed") == 3
    assert "data: and 3 more loaders of whose items none are larger than those fed" in said.text


@pytest.mark.thorough
def test_a_loader_that_was_begun_before_a_gpu_was_used(fits, tmp_path):
    """Nobody watched its first epoch, so that the longest items were not fed where there was only one."""
    late = CORPUS.replace('x = torch.zeros(1000, device="cuda")\n', "").replace(
        "    if len(seen) == 7", "    source.cuda()\n    if len(seen) == 7")
    for workers in "0", "2":
        said = fits(late, "--gpu", "1GiB", arguments=("shuffled", workers))
        plain, _ = seen_by(tmp_path)
        assert said.row["data"][0]["batches"] == 7
        assert "the longest were not among those that came after a GPU was used:" in said.text
        said = fits(late, "--gpu", "1GiB", "--worst-case", arguments=("shuffled", workers))
        fed, _ = seen_by(tmp_path)
        assert fed[0] == plain[0] and fed[1] == plain[1] and (512, 128) in fed


AHEAD = """
import sys, torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
data = [torch.ones(100 if i == 7 else 10) for i in range(40)]
x = torch.zeros(1000, device="cuda")
for number, batch in enumerate(DataLoader(data, 2, collate_fn=torch.nn.utils.rnn.pad_sequence, num_workers=2)):
    if number == 1: break
"""


def test_what_workers_have_ready_was_not_fed(fits):
    """Two of them make four batches ahead, of which the longest item would be in the last."""
    said = fits(AHEAD, "--gpu", "1GiB")
    (told,) = said.row["data"]
    assert told["batches"] == 2 and told["lengths"] == {"": {"seen": 10, "longest": 100}} and told["may_be_larger"]
    assert "2 of 20 batches were fed; the longest were not among them: 10 of 100" in said.text


SLOW = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Tokenized(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(10 + index)
x = torch.zeros(1000, device="cuda")
for _ in range(5):
    for number, batch in enumerate(DataLoader(Tokenized(), 1, shuffle=True)):
        if number == 5: break
"""


def test_where_there_was_no_time_to_look_nobody_knows(fits):
    """It said only how many were fed, and of more than three such loaders that none had larger items."""
    said = fits(SLOW, "--gpu", "1GiB")
    assert [told["may_be_larger"] for told in said.row["data"]] == [None] * 5
    assert "Tokenized: 6 of 400 batches were fed; whether the longest were among them is not known: of 400 items" in said.text
    assert "in 0.5 s (--worst-case looks longer, and feeds the longest)" in said.text and "more loaders" not in said.text


PACKED = """
import sys, numpy, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Texts(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index):
        if isinstance(index, list) and kind == "bins":
            return torch.cat([self[one] for one in index])
        if isinstance(index, slice):
            return [self[one] for one in range(40)[index]]
        return torch.ones(1 + int(index[0] if isinstance(index, tuple) else index))
kind = sys.argv[1]
batches = {
    "bins": [[[0, 1, 2], [5, 6]], [[3], [30]], [[4, 7, 8], [9, 10]]],
    "arrays": [numpy.array([0, 1]), numpy.array([2, 30]), numpy.array([3, 4])],
    "tensors": [torch.tensor([0, 1]), torch.tensor([2, 30]), torch.tensor([3, 4])],
    "sizes": [[(0, 224), (1, 224)], [(2, 32), (30, 32)]],
    "slices": [slice(0, 2), slice(2, 4)],
}[kind]
x = torch.zeros(1000, device="cuda")
for batch in DataLoader(Texts(), batch_sampler=None if kind == "slices" else batches,
                        **({"sampler": batches, "batch_size": None} if kind == "slices" else {}),
                        collate_fn=lambda items: [len(item) for item in items]):
    print(batch, file=open("seen", "a"))
"""


@pytest.mark.parametrize(("kind", "told", "worst"), [
    ("bins", "the longest were not looked for: they are packed into bins", "[4, 31]"),
    ("arrays", "the longest were not among them: 31 of 40", "[3, 31]"),
    ("tensors", "the longest were not among them: 31 of 40", "[3, 31]"),
    ("sizes", "Texts: 2 of 2 batches were fed", "[1, 2]"), ("slices", "Texts: 2 of 2 batches were fed", "[1, 2]")])
@pytest.mark.thorough(but=2)
def test_whatever_a_sampler_gives_is_no_reason_to_end(fits, tmp_path, kind, told, worst):
    """Packed texts are lists of lists, and ended the program; arrays did as well."""
    def seen():
        lines = (tmp_path / "seen").read_text().splitlines()
        (tmp_path / "seen").unlink()
        return lines
    assert told in fits(PACKED, "--gpu", "1GiB", arguments=(kind,)).text
    plain = seen()
    worst_case = fits(PACKED, "--gpu", "1GiB", "--worst-case", arguments=(kind,)).text
    assert ("every third was the one with the fullest bins" in worst_case) == (kind == "bins")
    fed = seen()
    assert len(fed) == len(plain) and fed[1:] == plain[1:] and fed[0] == worst


def test_where_the_order_is_fixed_only_batches_that_come_are_fed(fits, tmp_path):
    fits(CORPUS, "--gpu", "1GiB", "--worst-case", arguments=("sequential", "0"))
    fed, _ = seen_by(tmp_path)
    batch = range(76, 80)  # in which item 77 comes
    assert fed[0] == fed[3] == fed[6] == (512, max(LENGTHS[i][1] for i in batch))


@pytest.mark.thorough
def test_what_comes_out_of_a_stream_nobody_knows(fits):
    said = fits(CORPUS, "--gpu", "1GiB", "--worst-case", arguments=("stream", "0"))
    assert "it is a stream (IterableDataset), and nobody knows what comes out of it" in said.text
    assert said.row["data"][0]["fed_longest"] is False
    said = fits("import torch\ntorch.zeros(9).cuda()", "--gpu", "1GiB", "--worst-case")
    assert "--worst-case had nothing to feed: the program uses no DataLoader, its inputs were its own" in said.text


PARTS = """
import sys, typing, torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
class Molecule(typing.NamedTuple):
    atoms: torch.Tensor
    bonds: list
    name: str = "any"
class Datum(typing.NamedTuple):
    molecule: typing.Any
    target: torch.Tensor
class Opaque:
    __slots__ = ("atoms",)
    def __init__(self, atoms): self.atoms = atoms
class Graph:
    def __init__(self, atoms): self.atoms, self.made_by = atoms, print
    def __call__(self): pass
make = {"tuple": lambda n: Molecule(torch.ones(n, 4), [[1, 2]] * n), "opaque": lambda n: Opaque(torch.ones(n, 4)),
        "object": lambda n: Graph(torch.ones(n, 4)), "same": lambda n: Molecule(torch.ones(9, 4), [[1, 2]] * 9)}[sys.argv[1]]
data = [Datum(make(3 + 7 * i % 20), torch.ones(1)) for i in range(20)]
def joined(items): return torch.cat([item.molecule.atoms for item in items]), torch.cat([item.target for item in items])
x = torch.zeros(1000, device="cuda")
loader = DataLoader(data, 4, shuffle=True, collate_fn=joined)
for epoch in range(2):
    for atoms, target in loader: pass
"""


@pytest.mark.parametrize(("kind", "said", "larger"), [
    ("tuple", "with the longest among them ([0] 135, [1] 1)", None),  # 4 + 2 numbers an atom, and three letters
    ("object", "with the longest among them ([0] 88, [1] 1)", None),
    ("opaque", "all items are of one size", None),
    ("same", "all items are of one size", False)])
def test_items_have_parts_and_parts_have_parts(fits, kind, said, larger):
    """Molecules were "of one size": what a tuple or an object in an item consists of was not looked at."""
    found = fits(PARTS, "--gpu", "1GiB", arguments=(kind,))
    (told,) = found.row["data"]
    assert told["may_be_larger"] is larger, told
    assert (said in found.text) == (kind != "opaque"), found.text
    assert ("how large other parts of its items are is not known ([0] Opaque)" in found.text) == (kind == "opaque")
