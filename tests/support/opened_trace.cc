#include "tests/support/opened_trace.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <nlohmann/json.hpp>
#include <zstd.h>

namespace gapless::testing {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic{"GAPLESS\x01", 8};
constexpr std::string_view kEndMagic{"GAPLEND\x01", 8};
constexpr std::size_t kNumberBytes = 8;

std::string unpacked(std::string_view packed) {
  std::string bytes(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  const auto got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (got != bytes.size()) throw std::runtime_error("not a zstd frame");
  return bytes;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.substr(at, kNumberBytes).data(), kNumberBytes);
  return value;
}

std::string number_bytes(std::uint64_t value) {
  return {reinterpret_cast<const char*>(&value), kNumberBytes};
}

// The rest of a line, which is taken off `text`.
std::string take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string line(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void change(std::string& text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("no " + std::string(from) + " in " + text);
  text.replace(at, from.size(), to);
}

}  // namespace

std::string zstd(std::string_view bytes) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 1);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(
      ZSTD_compress2(context.get(), packed.data(), packed.size(), bytes.data(), bytes.size()));
  return packed;
}

OpenedTrace OpenedTrace::open(std::string_view compact) {
  OpenedTrace opened;
  const std::size_t header_at = kMagic.size() + kNumberBytes;
  opened.header = unpacked(compact.substr(header_at, number_at(compact, kMagic.size())));
  const std::size_t footer = compact.size() - kEndMagic.size() - 2 * kNumberBytes;
  json index = json::parse(unpacked(
      compact.substr(number_at(compact, footer), number_at(compact, footer + kNumberBytes))));
  for (json& frame : index["frames"]) {
    const std::string number = std::to_string(opened.frames.size());
    opened.frames.push_back(unpacked(compact.substr(frame["offset"], frame["bytes"])));
    frame["offset"] = "@" + number;
    frame["bytes"] = "#" + number;
  }
  opened.index = index.dump();
  return opened;
}

OpenedTrace OpenedTrace::of_text(std::string_view text) {
  OpenedTrace opened;
  opened.header = take_line(text);
  opened.index = take_line(text);
  const std::string sizes = take_line(text);
  for (const char *at = sizes.data(), *end = at + sizes.size(); at < end;) {
    std::uint64_t size = 0;
    at = std::from_chars(at, end, size).ptr + 1;
    opened.frames.emplace_back(text.substr(0, size));
    text.remove_prefix(opened.frames.back().size());
  }
  return opened;
}

std::string OpenedTrace::close() const {
  std::string file(kMagic);
  const std::string packed_header = zstd(header);
  file += number_bytes(packed_header.size()) + packed_header;
  std::string placed = index;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::string packed = zstd(frames[i]);
    const std::pair<std::string, std::size_t> values[] = {{"@", file.size()}, {"#", packed.size()}};
    for (const auto& [mark, value] : values) {
      const std::string word = "\"" + mark + std::to_string(i) + "\"";
      for (std::size_t at = 0; (at = placed.find(word, at)) != std::string::npos;) {
        placed.replace(at, word.size(), std::to_string(value));
      }
    }
    file += packed;
  }
  const std::string packed_index = zstd(placed);
  const std::string footer = number_bytes(file.size()) + number_bytes(packed_index.size());
  return file + packed_index + footer + std::string(kEndMagic);
}

std::string OpenedTrace::text() const {
  std::string text = header + "\n" + index + "\n";
  for (const std::string& frame : frames) text += std::to_string(frame.size()) + " ";
  text += "\n";
  for (const std::string& frame : frames) text += frame;
  return text;
}

void OpenedTrace::change_header(std::string_view from, std::string_view to) {
  change(header, from, to);
}
void OpenedTrace::change_index(std::string_view from, std::string_view to) {
  change(index, from, to);
}

}  // namespace gapless::testing
