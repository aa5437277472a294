"""Prints "passed failed skipped" of a JUnit report that ctest or pytest wrote."""
import sys
import xml.etree.ElementTree as ElementTree

suite = ElementTree.parse(sys.argv[1]).getroot()
cases = suite.findall(".//testcase")
if not cases:
    sys.exit("no test ran")
failed = sum(case.find("failure") is not None or case.find("error") is not None
             or case.get("status") == "fail" for case in cases)
skipped = sum(case.find("skipped") is not None for case in cases)
print(len(cases) - failed - skipped, failed, skipped)
