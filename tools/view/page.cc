#include "tools/view/page.h"

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "allocator/base/json_text.h"
#include "tools/svg.h"
#include "tools/view/page_files.h"

namespace gapless::tools {
namespace {

// Tables above this many bytes are deflated for speed: a quarter larger, in a third of the time.
constexpr std::size_t kLargeTableBytes = std::size_t{16} << 20;

// What only this page's own scripts and styles know. It keeps no secret from who reads the page:
// it lets the browser refuse a script or handler that came in with data.
std::string nonce() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string data_element(const std::string& id, const std::string& base64) {
  return fmt::format("<script type=\"text/plain\" id=\"{}\">{}</script>\n", id, base64);
}

std::string title_of(const std::vector<PageTrace>& traces) {
  std::string title;
  for (const PageTrace& trace : traces) title += (title.empty() ? "" : ", ") + trace.title;
  return title + " - gapless view";
}

}  // namespace

std::string deflated(std::string_view bytes) {
  z_stream stream{};
  const int level = bytes.size() > kLargeTableBytes ? 3 : 9;
  if (deflateInit(&stream, level) != Z_OK) throw std::bad_alloc();
  std::string out;
  std::array<char, 65536> buffer;
  do {  // avail_in has 32 bits
    const std::size_t part = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(part);
    bytes.remove_prefix(part);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = buffer.size();
      deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
      out.append(buffer.data(), buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  } while (!bytes.empty());
  deflateEnd(&stream);
  return out;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < left ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text.push_back(k <= left ? kDigits[bits >> (18 - 6 * k) & 63] : '=');
    }
  }
  return text;
}

PageTrace page_trace(const Trace& trace) {
  PageTrace page;
  page.title = trace.name;
  page.numbers = page_numbers(trace);
  page.base64 = std::async(std::launch::async, [table = page_table(trace, page.numbers)] {
    return base64_of(deflated(table));
  });
  return page;
}

std::string page_of(const std::vector<PageTrace>& traces) {
  nlohmann::json list = nlohmann::json::array();
  for (const PageTrace& trace : traces) {
    list.push_back({{"title", trace.title}, {"findings", trace.findings}});
  }
  const nlohmann::json about = {{"traces", list}};
  std::string data = data_element("about", base64_of(deflated(json_text(about))));
  for (std::size_t i = 0; i < traces.size(); ++i) {
    data += data_element(fmt::format("trace-{}", i), traces[i].base64.get());
  }
  std::string script;
  for (const std::string_view file : page_scripts()) {
    script += file;
    script += '\n';
  }
  // The skeleton is walked once, so that what is put in is never looked at again.
  const std::string this_nonce = nonce();
  const std::pair<std::string_view, std::string> parts[] = {
      {"{{TITLE}}", xml_text(title_of(traces))},
      {"{{NONCE}}", this_nonce},
      {"{{STYLE}}", std::string(page_style())},
      {"{{DATA}}", std::move(data)},
      {"{{SCRIPT}}", std::move(script)}};
  std::string page;
  std::string_view left = page_skeleton();
  for (std::size_t at = left.find("{{"); at != std::string_view::npos; at = left.find("{{")) {
    page += left.substr(0, at);
    left.remove_prefix(at);
    for (const auto& [name, text] : parts) {
      if (!left.starts_with(name)) continue;
      page += text;
      left.remove_prefix(name.size());
      break;
    }
  }
  page += left;
  return page;
}

}  // namespace gapless::tools
