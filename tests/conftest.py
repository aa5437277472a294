"""What tests of every folder are marked with, and `--short`, which leaves out those that are thorough."""
import collections


def pytest_addoption(parser):
    parser.addoption("--short", action="store_true", help="without what is marked as thorough")


def pytest_configure(config):
    config.addinivalue_line("markers", "thorough(but=0): more cases of what other tests show as well, and long ones; --short leaves "
                                       "out all of a test's cases but so many, spread evenly")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--short"):
        return
    cases = collections.defaultdict(list)  # of each marked test
    for item in items:
        if item.get_closest_marker("thorough"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = set()
    for each in cases.values():
        stay = each[0].get_closest_marker("thorough").kwargs.get("but", 0)
        last = len(each) - 1
        # The last one; the first and the last one; those and one from the middle ...
        kept = {last * i // (stay - 1) for i in range(stay)} if stay > 1 else {last} if stay else set()
        left_out.update(item for i, item in enumerate(each) if i not in kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
