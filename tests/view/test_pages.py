"""What a page of `gapless view` shows, and what it answers to."""
import json
import shutil
import subprocess

import pytest
from selenium.webdriver.common.keys import Keys

from conftest import GAPLESS, ROOT, TRACES

LORA = TRACES / "qwen-lora-varlen.gtrace"
STACKS = ROOT / "tests/tools/tiny.pickle"


@pytest.fixture(scope="session")
def lora(view):
    return view(LORA, name="lora.html")


@pytest.fixture(scope="session")
def pair(view):
    return view(LORA, TRACES / "t5-small-varlen.gtrace", TRACES / "lm-small-train.gtrace", name="pair.html")


@pytest.mark.parametrize("trace", [*sorted(TRACES.glob("*.gtrace")), STACKS], ids=lambda trace: trace.stem)
def test_shows_the_commands_numbers_without_an_error(browser, view, trace):
    page, told = view(trace)
    browser.open(page)
    assert browser.console() == []
    numbers = told["traces"][0]
    for name, selector in [("events", "count-events"), ("blocks", "count-blocks"), ("peak_allocated_bytes", "peak-allocated"),
                           ("peak_requested_bytes", "peak-requested")]:
        assert browser.number(f".numbers .{selector}") == numbers[name]
    if numbers["peak_reserved_bytes"] is None:
        assert "not recorded" in browser.text(".numbers .peak-reserved")
    else:
        assert browser.number(".numbers .peak-reserved") == numbers["peak_reserved_bytes"]
    assert browser.event() == numbers["peak_allocated_event"]  # a page opens at its peak
    assert not browser.run("return document.querySelector('.alarm')")


def test_small_and_without_network(browser, lora):
    page, told = lora
    assert told["output_bytes"] == page.stat().st_size < 5e6
    browser.open(page)
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    # The policy lets no script and no request of others through.
    browser.run("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s);"
                "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:1/x\" onerror=\"window.ran = 2\">')")
    assert not browser.run("return window.ran")
    assert any("Content Security Policy" in line for line in browser.console())


def test_canvases_show_something(browser, lora):
    browser.open(lora[0])
    for chart in ["timeline", "blocks", "addresses", "flame"]:
        colours = browser.run("""
            const canvas = document.querySelector(`.${arguments[0]} canvas`);
            const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size""", chart)
        assert colours > 3, chart


def test_the_stack_of_blocks_is_as_high_as_what_was_allocated(browser, lora):
    browser.open(lora[0])
    covered, expected = browser.run("""
        const {blocks, trace, pyramids} = gaplessView.active;
        const {owner, width, height} = blocks.raster;
        const {from, until} = blocks.columns(width);
        const [low, high] = blocks.range;
        let covered = 0, expected = 0;
        for (let c = 0; c < width; ++c) {
          pyramids.allocated.range(from[c], until[c]);
          expected += pyramids.allocated.high / (high - low) * height;
          for (let y = 0; y < height; ++y) if (owner[y * width + c] !== -1) ++covered;
        }
        return [covered, expected];""")
    assert covered == pytest.approx(expected, rel=0.01)


def test_pyramid_is_exact_at_every_level(browser, lora):
    browser.open(lora[0])
    wrong = browser.run("""
        const {values} = gaplessView.active.pyramids.allocated;
        const pyramid = gaplessView.active.pyramids.allocated;
        const wrong = [];
        let seed = 1;
        const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
        for (let i = 0; i < 400; ++i) {
          const from = random(values.length - 1);
          const until = from + 1 + random(Math.min(values.length - from, 10 ** (1 + i % 6)));
          let low = Infinity, high = -Infinity, at = 0;
          for (let e = from; e < until; ++e) {
            if (values[e] > high) { high = values[e]; at = e; }
            low = Math.min(low, values[e]);
          }
          pyramid.range(from, until);
          if (pyramid.low !== low || pyramid.high !== high || pyramid.peakOf(from, until) !== at) wrong.push([from, until]);
        }
        return wrong;""")
    assert wrong == []


def test_segments_at_a_moment_sum_up_to_what_is_reserved(browser, view):
    page, _ = view(STACKS)
    browser.open(page)
    wrong = browser.run("""
        const {trace, addresses} = gaplessView.active;
        const wrong = [];
        for (const e of [trace.count - 1, trace.first, trace.count >> 1, trace.count - 1, trace.count >> 2]) {
          const sum = addresses.history.at(e).reduce((all, {from, to}) => all + to - from, 0);
          if (sum !== trace.reserved[e]) wrong.push([e, sum, trace.reserved[e]]);
        }
        return wrong;""")
    assert wrong == []


def test_keyboard(browser, lora):
    browser.open(lora[0])
    peak = browser.event()
    browser.press(Keys.ARROW_RIGHT)
    assert browser.event() == peak + 1
    browser.press(Keys.ARROW_LEFT)
    browser.press(Keys.ARROW_LEFT)
    assert browser.event() == peak - 1
    browser.press(Keys.HOME)
    assert browser.event() <= 1
    browser.press("p")
    assert browser.event() == peak
    whole = browser.run("return gaplessView.view")
    browser.press("+")
    closer = browser.run("return gaplessView.view")
    assert closer[1] - closer[0] < whole[1] - whole[0]
    assert closer[0] <= peak <= closer[1]
    browser.press("-")
    browser.press("+")
    browser.press("0")
    assert browser.run("return gaplessView.view") == whole
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    browser.press(Keys.ESCAPE)
    assert not browser.run("return document.getElementById('help').open")
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.press("xyz", Keys.ESCAPE)
    assert browser.run("return gaplessView.filter.isOn") is False
    assert browser.console() == []


def test_wheel_and_drag(browser, lora):
    browser.open(lora[0])
    browser.run("""
        const over = document.querySelector('.timeline .over');
        const box = over.getBoundingClientRect();
        over.dispatchEvent(new WheelEvent('wheel', {clientX: box.left + box.width / 2, clientY: box.top + 50, deltaY: -300, cancelable: true}))""")
    browser.settle()
    near = browser.run("return gaplessView.view")
    whole = browser.run("return gaplessView.whole")
    assert near[1] - near[0] < (whole[1] - whole[0]) * 0.7
    assert browser.console() == []


def test_a_block_tells_what_it_is(browser, view):
    page, _ = view(TRACES / "lm-forward-13gb.gtrace")
    browser.open(page)
    browser.run("""
        const {blocks} = gaplessView.active;
        const {owner, width} = blocks.raster;
        const inside = (at) => owner[at] >= 0 && [1, -1, width, -width].every((step) => owner[at + step] === owner[at]);
        const at = owner.findIndex((_, index) => inside(index));
        const box = blocks.over.getBoundingClientRect();
        const x = Math.round(box.left + blocks.margin.left + at % width);
        const y = Math.round(box.top + blocks.margin.top + Math.floor(at / width));
        blocks.over.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y, bubbles: true}));
        blocks.over.dispatchEvent(new MouseEvent('click', {clientX: x, clientY: y, bubbles: true}));""")
    browser.settle()
    tip = browser.text("#tip")
    assert "size" in tip and "stream" in tip and "pool" in tip
    details = browser.text(".details")
    assert "Block " in details and "allocated at" in details


def test_own_frames_stand_out(browser, view):
    page, _ = view(STACKS)
    browser.open(page)
    frames = browser.run("""
        const pane = gaplessView.active;
        const block = Array.from({length: pane.trace.blocks}, (_, b) => b)
          .find((b) => pane.trace.framesOf(pane.trace.site[b]).some(({kind}) => kind === 0));
        if (block === undefined) return null;
        gaplessView.selectBlock(pane, block);
        return pane.trace.framesOf(pane.trace.site[block]).map(({text}) => text);""")
    if frames is None:
        pytest.skip("the snapshot holds no stacks")
    browser.settle()
    assert browser.text(".stack .own") in frames


def test_filter(browser, lora):
    browser.open(lora[0])
    found = browser.run("""
        gaplessView.filter.least.value = '1 GiB';
        gaplessView.filterChanged();
        const {trace, matching} = gaplessView.active;
        return [matching.count, trace.bytes.reduce((n, bytes) => n + (bytes >= 2 ** 30 ? 1 : 0), 0), matching.peak]""")
    assert found[0] == found[1] > 0
    browser.settle()
    assert f"{found[0]:,} blocks" in browser.text(".result")
    browser.run("gaplessView.filter.least.value = 'much'; gaplessView.filterChanged()")
    assert browser.run("return document.querySelector('[aria-invalid=true]') !== null")
    assert browser.console() == []


def test_search_in_stacks(browser, view):
    page, _ = view(TRACES / "lm-forward-13gb.gtrace")
    browser.open(page)
    sites = browser.run("return gaplessView.active.trace.sites")
    word = next(site for site in sites if site).split(":")[0][-12:]
    browser.press("/")
    browser.press(word)
    found = browser.run("return gaplessView.active.matching.count")
    assert 0 < found
    browser.press(Keys.ESCAPE)


def test_link_to_a_moment(browser, lora):
    browser.open(lora[0], "#trace=0&event=1234&from=1000&to=2000")
    assert browser.event() == 1234
    assert browser.run("return gaplessView.view") == [1000, 2000]
    assert "event 1,234 of" in browser.text(".moment")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(lambda: "event=1235" in browser.run("return location.hash"), "the link to follow")
    browser.open(lora[0], "#trace=99&event=-5&from=x&to=1e999&with=-1&axis=no")
    assert browser.console() == []


def test_time_axis(browser, lora):
    browser.open(lora[0])
    event = browser.event()
    browser.press("x")
    assert browser.run("return gaplessView.axis") == "time"
    assert browser.event() == event
    assert browser.console() == []


def test_two_traces_on_one_axis(browser, pair):
    page, told = pair
    browser.open(page, "#trace=0&with=1")
    assert browser.run("return gaplessView.panes.map((pane) => pane.trace.name)") == ["qwen-lora-varlen", "t5-small-varlen"]
    assert browser.run("return document.querySelectorAll('.timeline').length") == 2
    peaks = browser.run("return [...document.querySelectorAll('.numbers .peak-allocated')].map((part) => Number(part.dataset.value))")
    assert peaks == [trace["peak_allocated_bytes"] for trace in told["traces"][:2]]
    browser.run("gaplessView.selectAt(5000)")
    assert browser.run("return gaplessView.panes.map((pane) => pane.trace.eventNumber(pane.selected))") == [5000, 5000]
    # The third instead of the second, then one alone.
    browser.run("gaplessView.others[0].value = '2'; gaplessView.others[0].dispatchEvent(new Event('change'))")
    browser.wait(lambda: browser.run("return gaplessView.panes[1]?.trace.name === 'lm-small-train'"), "the third trace")
    browser.run("gaplessView.others[0].value = ''; gaplessView.others[0].dispatchEvent(new Event('change'))")
    browser.wait(lambda: browser.run("return gaplessView.panes.length === 1"), "one trace")
    assert browser.console() == []


def test_four_traces_on_one_axis(browser, view):
    page, told = view(LORA, TRACES / "t5-small-varlen.gtrace", TRACES / "lm-small-train.gtrace", TRACES / "lm-forward-13gb.gtrace",
                      STACKS, name="four.html")
    browser.open(page, "#trace=0&with=1&with=2&with=3&with=4")
    names = "return gaplessView.panes.map((pane) => pane.trace.name)"
    assert browser.run(names) == [trace["name"] for trace in told["traces"][:4]]  # there is room for four
    browser.run("gaplessView.selectAt(5000)")
    browser.settle()
    # One moment, at one place of each axis.
    assert browser.run("return gaplessView.panes.map((pane) => pane.trace.eventNumber(pane.selected))")[:3] == [5000] * 3
    assert len(set(browser.run("return gaplessView.panes.map(({timeline}) => Math.round(timeline.xOf(5000)))"))) == 1
    assert browser.run("return new Set(gaplessView.panes.map(({timeline}) => timeline.most)).size") == 1
    # Two beside each other in a window this wide, four in a wider one; like beside like.
    tops = "return [...document.querySelectorAll('.' + arguments[0])].map((part) => Math.round(part.getBoundingClientRect().top))"
    for part in ["timeline", "blocks", "addresses"]:
        first, second, third, fourth = browser.run(tops, part)
        assert first == second < third == fourth, part
    browser.wait(lambda: "with=1&with=2&with=3" in browser.run("return location.hash"), "the link to follow")
    # One is let go; the others stay in their order.
    browser.run("gaplessView.others[1].value = ''; gaplessView.others[1].dispatchEvent(new Event('change'))")
    browser.wait(lambda: browser.run("return gaplessView.panes.length === 3"), "three traces")
    assert browser.run(names) == [told["traces"][i]["name"] for i in (0, 1, 3)]
    assert len(set(browser.run(tops, "timeline"))) == 1
    assert browser.run("return gaplessView.others.map(({value, hidden}) => [value, hidden])") == [["1", False], ["3", False], ["", False]]
    assert browser.console() == []


# Every second of some blocks is freed, and as much is asked for in one piece: twice, with more the second time. Before, all is
# given back and as much is taken, which is recorded much alike.
IN_WINDOWS = """
record()
free(alloc(4 * MiB)); trim(); free(alloc(4 * MiB))
blocks = [alloc(8 * MiB) for _ in range(6)]
for block in blocks[::2]: free(block)
first = alloc(20 * MiB)
kept = alloc(3 * MiB)
free(first)
last = alloc(22 * MiB)
"""
# Sizes at random on a full device, and a recording that begins late.
AT_RANDOM = """
draw, live = random.Random(3), []
def free_one():
    i = draw.randrange(len(live))
    live[i], live[-1] = live[-1], live[i]
    free(live.pop())
for step in range(6000):
    if step == 500: record()
    size = int(2 ** draw.uniform(19, 27))
    while True:
        try:
            live.append(alloc(size))
            break
        except MemoryError:
            free_one()
    if draw.random() < 0.7 and len(live) > 40:
        for _ in range(draw.randrange(1, 3)): free_one()
    if step % 1500 == 1400: trim()
"""


def lent(dump):
    device, = dump["devices"]
    return sorted((block["address"], block["bytes"]) for block in device["home"] if block["kind"] == "lent")


def pieces_at_the_end(browser):
    shown = browser.run("""
        const {trace, windows} = gaplessView.active;
        return windows.at(trace.count - 1).flatMap(({pieces}) => pieces.map(({offset, bytes}) => [trace.addressText(offset), bytes]))""")
    return sorted((int(address, 16), size) for address, size in shown)


def test_windows_of_a_long_run_are_those_of_its_dump(browser, view, recorded):
    recording, dump = recorded(AT_RANDOM)
    browser.open(view(recording, name="random.html")[0])
    assert len(lent(dump)) > 20
    assert pieces_at_the_end(browser) == lent(dump)
    assert browser.run("return gaplessView.active.windows.lent.length") > 100
    assert browser.console() == []


def test_pages_of_windows_show_in_the_home(browser, view, recorded):
    recording, dump = recorded(IN_WINDOWS)
    page, _ = view(recording, name="windows.html")
    browser.open(page)
    browser.press(Keys.END)
    device, = dump["devices"]
    assert len(lent(dump)) > 1 and pieces_at_the_end(browser) == lent(dump)
    window, = device["window_blocks"]
    found = browser.run("""
        const pane = gaplessView.active;
        const {addresses, axis, places, trace, windows} = pane;
        const [window] = windows.at(pane.selected);
        // What is drawn at the middle of each piece of the home, and of the window.
        const ownerAt = (place) => {
          const at = (place - addresses.start) / addresses.rowBytes;
          return addresses.raster.ownerAt((at % 1) * addresses.raster.width, (Math.floor(at) * (ROW_PIXELS + ROW_GAP) + ROW_PIXELS / 2) * addresses.scale);
        };
        return {block: window.block, address: trace.addressText(window.offset), bytes: trace.bytes[window.block],
          home: window.pieces.map(({offset, bytes}) => ownerAt(axis.placeOf(offset) + bytes / 2)),
          window: ownerAt(places[window.block] + window.bytes / 2),
          lines: addresses.lentLines(axis.placeOf(window.pieces[0].offset)).map(([name]) => name), facts: Details.facts(pane, window.block)}""")
    assert (int(found["address"], 16), found["bytes"]) == (window["address"], window["requested_bytes"])
    assert set(found["home"]) == {found["window"]} == {found["block"]}
    assert found["lines"] == ["page of the home", "lent to"]
    assert f"{len(lent(dump))} pieces of the home" in dict(found["facts"])["in a window of"]
    assert "1 block in windows over 22.0 MiB of the home (hatched)" in browser.text(".addresses .note")
    # The window before it went with its block; others' unmapping is no lending.
    assert browser.run("return gaplessView.active.windows.lent.length") == 2
    browser.press(Keys.HOME)
    assert browser.run("return gaplessView.active.windows.at(gaplessView.active.shown)") == []
    assert browser.console() == []


def test_what_inspect_finds_stands_at_the_top(browser, view, pair):
    page, _ = view(STACKS)
    browser.open(page)

    def found(trace) -> list[str]:
        done = subprocess.run([GAPLESS, "inspect", "--json", trace], capture_output=True, text=True, check=True)
        return [finding["text"] for finding in json.loads(done.stdout)[0]["findings"]]

    assert browser.run("return [...document.querySelectorAll('#findings p')].map(p => p.textContent)") == found(STACKS)
    browser.open(pair[0])  # and of the trace that is shown
    replayed = [text for text in found(LORA) if "GiB with gapless" in text]
    assert len(replayed) == 1 and replayed[0] in browser.text("#findings")
    assert browser.text("#findings").count("GiB with gapless") == 1


def test_dark_and_light(browser, lora):
    shade = "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number).reduce((a, b) => a + b)"
    browser.prefer("dark")
    browser.open(lora[0])
    assert browser.run(shade) < 150
    browser.press("t")
    assert browser.run(shade) > 600
    browser.prefer("light")
    browser.open(lora[0])
    assert browser.run(shade) > 600


def test_markup_shows_as_text(browser, view, tmp_path):
    bad = "<img src=x onerror=alert(1)><script>alert(2)<"
    trace = tmp_path / f"{bad}.pickle"
    shutil.copy(STACKS, trace)
    page, told = view(trace)
    browser.open(page)
    assert browser.console() == []
    assert told["traces"][0]["name"] == bad
    assert browser.text(".alone") == bad
    assert browser.run("return document.images.length") == 0
    assert bad in browser.driver.title


def test_out_of_memory_is_marked(browser, view, tmp_path):
    page, told = view(LORA)
    browser.open(page)
    browser.run("""
        const {trace} = gaplessView.active;
        trace.ooms.push({event: 5000, bytes: 2 ** 31, free: 0, site: 0});
        gaplessView.redraw()""")
    browser.press("o")
    assert browser.run("return gaplessView.active.selected") == 5000


def test_damaged_data_is_told(browser, lora, tmp_path):
    text = lora[0].read_text()
    at = text.index('id="trace-0">') + 200
    broken = tmp_path / "broken.html"
    broken.write_text(text[:at] + "AAAAAAAA" + text[at + 8:])
    browser.driver.get(f"file://{broken}")
    browser.wait(lambda: "cannot be shown" in browser.run("return document.getElementById('loading')?.textContent ?? ''"),
                 "the page to say that it is broken")


def test_a_picture_made_in_steps_is_that_made_at_once(browser, lora):
    browser.open(lora[0])
    made = """
        const [steps, mode, done] = arguments;
        const {active, view} = gaplessView;
        const {blocks} = active;
        gaplessView.measureFrame = () => {};
        gaplessView.stepsMs = steps;
        blocks.mode = mode;
        gaplessView.view = [60000, 90000];
        gaplessView.redraw();
        let frames = 0;
        requestAnimationFrame(function look() {
          ++frames;
          if (gaplessView.busy) return requestAnimationFrame(look);
          let sum = 0;
          for (const owner of blocks.raster.owner) sum = (sum * 31 + owner) % 1000003;
          for (const pixel of blocks.raster.pixels) sum = (sum * 31 + pixel) % 1000003;
          done([frames, sum, blocks.note.textContent, blocks.isCurrent]);
        });"""
    for mode in ["stacked", "address"]:
        several, one = (browser.driver.execute_async_script(made, ms, mode) for ms in (0, 10000))
        assert several[0] > 5 > one[0], mode
        assert several[1:] == one[1:], mode
    assert browser.console() == []


def test_blocks_are_found_in_a_picture_of_another_stretch(browser, lora):
    browser.open(lora[0])
    # Half of the stretch is shown, and the picture is still that of all: stretched to twice its width.
    wrong = browser.run("""
        const app = gaplessView;
        const {blocks} = app.active;
        const {owner, width, height} = blocks.raster;
        const [from, to] = app.view;
        app.stepsMs = 0;
        app.view = [from, (from + to) / 2];
        const {left, top} = blocks.margin;
        let seen = 0;
        const wrong = [];
        for (let x = 1; x < width / 2 - 1; x += 7) {
          for (let y = 1; y < height; y += 11) {
            const found = blocks.blockAt(left + 2 * x + 1, top + y + 0.5);
            if (found >= 0) ++seen;
            if (found !== owner[y * width + x]) wrong.push([x, y, found]);
          }
        }
        return blocks.isCurrent || seen === 0 ? 'nothing was looked at' : wrong""")
    assert wrong == []


def test_live_blocks_are_found_by_their_lifetimes(browser, view):
    page, _ = view(STACKS)
    browser.open(page)
    wrong = browser.run("""
        const {trace} = gaplessView.active;
        const wrong = [];
        for (let e = trace.first; e < trace.count; ++e) {
          const found = [];
          trace.forEachLive(e, (block) => found.push(block));
          const live = Array.from({length: trace.blocks}, (_, b) => b).filter((b) => trace.isLive(b, e));
          if (String(found.sort((a, b) => a - b)) !== String(live)) wrong.push(e);
        }
        return wrong""")
    assert wrong == []


MEASURE = """
const [chart, frames, done] = arguments;
const pane = gaplessView.active;
const over = (chart === 'scrub' ? pane.timeline : pane.blocks).over;
const box = over.getBoundingClientRect();
let frame = 0, begun = 0, last = 0, worst = 0;
function step() {
  const now = performance.now();
  if (frame === 0) begun = now;
  else worst = Math.max(worst, now - last);
  last = now;
  if (frame++ === frames) {
    done([frames * 1000 / (now - begun), worst]);
    return;
  }
  const at = {clientX: box.left + box.width * (0.1 + 0.8 * (frame % 60) / 60), clientY: box.top + box.height / 2, bubbles: true, cancelable: true};
  over.dispatchEvent(chart === 'scrub' ? new PointerEvent('pointermove', at)
    : new WheelEvent('wheel', {...at, clientX: box.left + box.width * 0.4, deltaY: frame % 80 < 40 ? -60 : 60}));
  requestAnimationFrame(step);
}
requestAnimationFrame(step);
"""


@pytest.mark.parametrize("steps", [100, 2500], ids=["0.2 million events", "5 million events"])
def test_frames_per_second(browser, view, tmp_path, steps):
    trace = tmp_path / "moe.gtrace"
    subprocess.run([GAPLESS, "generate", "moe", "--steps", str(steps), "-o", trace], check=True, capture_output=True)
    page, told = view(trace, name=f"moe-{steps}.html")
    ready = browser.open(page)
    rates = {chart: browser.driver.execute_async_script(MEASURE, chart, 90) for chart in ["zoom", "scrub"]}
    print(json.dumps({"events": told["traces"][0]["events"], "bytes": told["output_bytes"], "ready_ms": ready,
                      "frames_per_second": {chart: round(rate, 1) for chart, (rate, _) in rates.items()},
                      "worst_frame_ms": {chart: round(worst) for chart, (_, worst) in rates.items()}}))
    assert browser.console() == []
    assert min(rate for rate, _ in rates.values()) > 5  # on a machine that has much else to do
    assert ready < 20000
