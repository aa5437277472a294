#include "allocator/trace/compact_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>
#include <zstd.h>

#include "allocator/base/error.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic{"GAPLESS\x01", 8};
constexpr std::string_view kEndMagic{"GAPLEND\x01", 8};
constexpr std::size_t kFooterBytes = 24;  // index offset, index bytes, end magic
constexpr std::size_t kFrameEvents = 65536;
constexpr std::uint64_t kMostHeaderBytes = std::uint64_t{1} << 30;
constexpr int kLevel = 9;

static_assert(std::endian::native == std::endian::little, "records are written as they lie");

std::string compress(std::string_view bytes) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(
      ZSTD_compress2(context.get(), packed.data(), packed.size(), bytes.data(), bytes.size()));
  return packed;
}

// The whole of one frame, which says its own size; `most` guards against one that lies.
std::string decompress(std::string_view packed, std::uint64_t most, const std::string& file,
                       const std::string& place) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw InputError(file, place, "not a zstd frame");
  }
  // zstd packs at best some 50,000 : 1; more is an attack on memory.
  if (size > most || size / 65536 > packed.size()) {
    throw InputError(file, place, "claims to unpack to " + std::to_string(size) + " bytes");
  }
  std::string bytes(size, '\0');
  const std::size_t got = ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != size) {
    throw InputError(file, place,
                     ZSTD_isError(got) != 0 ? ZSTD_getErrorName(got) : "the frame is too short");
  }
  return bytes;
}

void put_u64(std::string& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t get_u64(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

json header_of(const std::vector<Trace>& traces) {
  json devices = json::array();
  for (const Trace& trace : traces) {
    devices.push_back({{"name", trace.name},
                       {"source", trace.source},
                       {"device", trace.device},
                       {"events", trace.events.size()},
                       {"initial_events", trace.initial_events},
                       {"blocks", trace.blocks},
                       {"streams", trace.streams},
                       {"pools", trace.pools},
                       {"sites", trace.sites},
                       {"recorded_peak_reserved_bytes", trace.recorded_peak_reserved_bytes},
                       {"starts_empty", trace.starts_empty},
                       {"warnings", trace.warnings}});
  }
  return {{"format", 1}, {"devices", devices}};
}

json parse_json(const std::string& text, const std::string& file, const char* place) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw InputError(file, place, error.what());
  }
}

}  // namespace

std::string write_compact(const std::vector<Trace>& traces) {
  std::string out(kMagic);
  const std::string header = compress(header_of(traces).dump());
  put_u64(out, header.size());
  out += header;
  json frames = json::array();
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const std::vector<TraceEvent>& events = traces[i].events;
    for (std::size_t first = 0; first < events.size(); first += kFrameEvents) {
      const std::size_t count = std::min(kFrameEvents, events.size() - first);
      const std::string_view raw(reinterpret_cast<const char*>(events.data() + first),
                                 count * sizeof(TraceEvent));
      const std::string packed = compress(raw);
      frames.push_back({{"offset", out.size()},
                        {"bytes", packed.size()},
                        {"trace", i},
                        {"first", first},
                        {"events", count}});
      out += packed;
    }
  }
  const std::string index = compress(json{{"frames", frames}}.dump());
  const std::uint64_t index_offset = out.size();
  out += index;
  put_u64(out, index_offset);
  put_u64(out, index.size());
  out += kEndMagic;
  return out;
}

bool looks_like_compact(std::string_view bytes) { return bytes.starts_with(kMagic); }

std::vector<Trace> read_compact(std::string_view bytes, const std::string& name) {
  if (!looks_like_compact(bytes)) throw InputError(name, "byte 0", "not a gapless trace");
  if (bytes.size() < kMagic.size() + 8 + kFooterBytes || !bytes.ends_with(kEndMagic)) {
    throw InputError(name, "end", "the file is cut off");
  }
  const std::uint64_t body = bytes.size() - kFooterBytes;
  const auto part = [&](std::uint64_t offset, std::uint64_t length, const char* place) {
    if (offset > body || length > body - offset) {
      throw InputError(name, place, "points outside of the file");
    }
    return bytes.substr(offset, length);
  };
  const std::uint64_t header_bytes = get_u64(bytes.substr(kMagic.size()));
  const json header = parse_json(
      decompress(part(kMagic.size() + 8, header_bytes, "header"), kMostHeaderBytes, name, "header"),
      name, "header");
  const std::string_view footer = bytes.substr(body);
  const json index =
      parse_json(decompress(part(get_u64(footer), get_u64(footer.substr(8)), "footer"),
                            kMostHeaderBytes, name, "index"),
                 name, "index");
  std::vector<Trace> traces;
  try {
    if (header.at("format").get<int>() != 1) {
      throw InputError(name, "header",
                       "format " + header.at("format").dump() + "; this version reads format 1");
    }
    for (const json& facts : header.at("devices")) {
      Trace trace;
      facts.at("name").get_to(trace.name);
      facts.at("source").get_to(trace.source);
      facts.at("device").get_to(trace.device);
      facts.at("initial_events").get_to(trace.initial_events);
      facts.at("blocks").get_to(trace.blocks);
      facts.at("streams").get_to(trace.streams);
      facts.at("pools").get_to(trace.pools);
      facts.at("sites").get_to(trace.sites);
      facts.at("recorded_peak_reserved_bytes").get_to(trace.recorded_peak_reserved_bytes);
      facts.at("starts_empty").get_to(trace.starts_empty);
      facts.at("warnings").get_to(trace.warnings);
      traces.push_back(std::move(trace));
    }
    for (const json& frame : index.at("frames")) {
      const auto which = frame.at("trace").get<std::size_t>();
      if (which >= traces.size()) throw InputError(name, "index", "a frame of an unknown trace");
      Trace& trace = traces[which];
      if (frame.at("first").get<std::size_t>() != trace.events.size()) {
        throw InputError(name, "index", "frames out of order");
      }
      const auto count = frame.at("events").get<std::uint64_t>();
      const std::string place = "frame at byte " + frame.at("offset").dump();
      if (count > kFrameEvents) throw InputError(name, place, "too many events");
      const std::string raw = decompress(part(frame.at("offset").get<std::uint64_t>(),
                                              frame.at("bytes").get<std::uint64_t>(), "index"),
                                         count * sizeof(TraceEvent), name, place);
      if (raw.size() != count * sizeof(TraceEvent)) {
        throw InputError(name, place, "the frame is too short");
      }
      const std::size_t before = trace.events.size();
      trace.events.resize(before + count);
      std::memcpy(trace.events.data() + before, raw.data(), raw.size());
    }
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (traces[i].events.size() != header.at("devices")[i].at("events").get<std::uint64_t>()) {
        throw InputError(name, "index", "events are missing");
      }
    }
  } catch (const json::exception& error) {
    throw InputError(name, "header", error.what());
  }
  for (const Trace& trace : traces) {
    for (std::size_t i = 0; i < trace.events.size(); ++i) {
      if (static_cast<std::uint8_t>(trace.events[i].kind) >= kEventKinds) {
        throw InputError(name, "event " + std::to_string(i), "an unknown kind");
      }
    }
    if (trace.blocks > trace.events.size()) {
      throw InputError(name, "header", "more blocks than events");
    }
    check_trace(trace);
  }
  return traces;
}

}  // namespace gapless
