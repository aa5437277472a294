// How sizes, counts and times are written, and small helpers that every part uses.

const KIB = 1024;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function unitOf(bytes) {
  let unit = 0;
  while (unit < UNITS.length - 1 && bytes >= KIB ** (unit + 1)) ++unit;
  return unit;
}

// "512 B", "20.0 MiB", "2.32 GiB": three digits are enough to compare by.
function bytesText(bytes) {
  const unit = unitOf(Math.abs(bytes));
  const value = bytes / KIB ** unit;
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

function countText(count) {
  return Math.round(count).toLocaleString('en-US');
}

function exactBytesText(bytes) {
  return bytes < KIB ? `${countText(bytes)} B` : `${bytesText(bytes)} (${countText(bytes)} B)`;
}

function durationText(us) {
  if (us < 1e3) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e5 ? 2 : 0)} ms`;
  if (us < 120e6) return `${(us / 1e6).toFixed(us < 1e7 ? 3 : 1)} s`;
  const seconds = Math.round(us / 1e6);
  return `${countText(Math.floor(seconds / 60))} min ${seconds % 60} s`;
}

function percentText(part, whole) {
  if (whole <= 0) return '';
  const percent = part / whole * 100;
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

// "4 GiB", "0.5 MiB", "512 KiB": a whole size as somebody types it; NaN for what is none.
function readBytes(text) {
  const found = /^\s*([0-9.,]+)\s*([kmgt]?)(i?b)?\s*$/i.exec(text);
  if (!found) return NaN;
  return Number(found[1].replace(/,/g, '')) * KIB ** ' kmgt'.indexOf((found[2] || ' ').toLowerCase());
}

// Ticks of sizes: round numbers of one unit.
function byteTicks(most, count) {
  const unit = unitOf(most);
  const scale = KIB ** unit;
  const ticks = d3.ticks(0, most / scale, count);
  return ticks.map((value) => ({value: value * scale, text: value === 0 ? '0' : `${+value.toFixed(6)} ${UNITS[unit]}`}));
}

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') made.className = value;
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'text') made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A call site without the folders that lead to it: "nn/functional.py:1700 gelu".
function shortSite(text) {
  const found = /^.*?([^/\\]*[/\\][^/\\]+:\d+ .*)$/.exec(text);
  return found ? found[1] : text;
}

// The longest beginning of a text that fits, with an ellipsis.
function fittingText(context, text, width) {
  if (width < 8) return '';
  if (context.measureText(text).width <= width) return text;
  let least = 0;
  let most = text.length;
  while (least < most) {
    const middle = (least + most + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + '…').width <= width) least = middle;
    else most = middle - 1;
  }
  return least < 3 ? '' : text.slice(0, least) + '…';
}

// --- colours: told apart by hue and by lightness, none by red against green alone -----------------

const SERIES = {
  dark: ['#5aa9e6', '#f0a830', '#b48ede', '#f4e285', '#3d6fb6', '#e07a3f', '#9fd3f0', '#8a6fc2', '#c9a66b', '#7f8fa6'],
  light: ['#2a6fb0', '#e08e0b', '#8a5bb5', '#e8cf4a', '#1c3f75', '#c55a1e', '#79b9e2', '#5b3f92', '#a88646', '#7d8894'],
};
const COUNTERS = {
  dark: {requested: '#f4e285', allocated: '#5aa9e6', reserved: '#e8a23d', match: '#d6a6ff'},
  light: {requested: '#13315c', allocated: '#2a78bd', reserved: '#b86a00', match: '#7a3fb0'},
};

function themeName() {
  return document.documentElement.dataset.theme;
}

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// 0xAABBGGRR: a pixel of a canvas on every machine that browsers run on.
function pixelOf(colour) {
  const {r, g, b} = d3.rgb(colour);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

function mixedPixel(from, to, share) {
  const part = (shift) => {
    const a = (from >>> shift) & 255;
    return Math.round(a + (((to >>> shift) & 255) - a) * share) << shift;
  };
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
}
