"""Prints "passed failed skipped" of a JUnit report that ctest or pytest wrote, then the failed ones: a line with the
name of each, and the last lines of what it said."""
import sys
import xml.etree.ElementTree as ElementTree

LINES = 12  # of what a test said, at most

suite = ElementTree.parse(sys.argv[1]).getroot()
cases = suite.findall(".//testcase")
if not cases:
    sys.exit("no test ran")


def fault(case: ElementTree.Element) -> ElementTree.Element | None:
    found = [case.find(kind) for kind in ("failure", "error")]
    return next((one for one in found if one is not None), case if case.get("status") == "fail" else None)


failed = [case for case in cases if fault(case) is not None]
skipped = sum(case.find("skipped") is not None for case in cases)
print(len(cases) - len(failed) - skipped, len(failed), skipped)
for case in failed:
    one = fault(case)
    # pytest says it in the failure itself, ctest beside it.
    said = f"{(one.text or '') if one is not None else ''}\n{case.findtext('system-out') or ''}".strip()
    print(f"--- {case.get('classname') or ''} {case.get('name')}".replace("---  ", "--- "))
    print("\n".join(said.splitlines()[-LINES:]))
