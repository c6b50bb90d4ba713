#include "papers/redox/redox_dump.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace headrace {
namespace {

using Virtual = RedoxLayout::Virtual;

// The members of a JSON array, with commas between them.
class Members {
 public:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    if (!text_.empty()) text_ += ',';
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string OrNull(std::optional<std::uint64_t> value) {
  return value.has_value() ? fmt::to_string(*value) : "null";
}

std::string Files(const RedoxDump& of) {
  const RedoxLayout& layout = of.layout;
  std::map<std::uint32_t, RedoxHeld> held;
  for (const RedoxHeld& each : of.protocol.Residents()) held.emplace(each.sample, each);
  Members files;
  std::uint32_t v = 0;
  for (const Virtual& each : layout.virtual_chunks()) {
    for (std::uint32_t member = 0; member < each.chunk_count; ++member) {
      const std::uint32_t chunk = layout.chunk(each, member);
      const BlockMap::Block block = layout.blocks().block(chunk);
      for (std::uint32_t o = 0; o < block.count; ++o) {
        const auto file = static_cast<std::uint32_t>(Raw(block.first)) + o;
        const auto at = held.find(file);
        std::optional<std::uint64_t> position;
        if (of.asks[file] != RedoxDump::kNotAsked) position = of.asks[file];
        std::optional<std::uint64_t> requester;
        if (position.has_value()) requester = *position % of.nodes;
        std::optional<std::uint64_t> node;
        std::optional<std::uint64_t> read;
        if (at != held.end()) {
          node = at->second.node;
          read = at->second.read;
        }
        files.Add(
            R"({{"file":{},"VC":{},"PC":{},"O":{},"H":{},"R":{},"sn":{},"node":{},"read":{},"consumed":{}}})",
            file, v, chunk, o, each.home, OrNull(requester), OrNull(position), OrNull(node),
            OrNull(read), of.chooser().WasKept(each, member, o));
      }
    }
    ++v;
  }
  return files.text();
}

std::string VirtualChunks(const RedoxDump& of) {
  Members chunks;
  std::uint32_t v = 0;
  for (const Virtual& each : of.layout.virtual_chunks()) {
    Members members;
    for (std::uint32_t i = 0; i < each.chunk_count; ++i) {
      members.Add("{}", of.layout.chunk(each, i));
    }
    Members slots;
    for (std::uint32_t x = 0; x < each.slot_count; ++x) {
      Members here;
      for (const RedoxResident& resident : of.places().Of(each.first_slot + x)) {
        here.Add("{}", resident.sample);
      }
      slots.Add("[{}]", here.text());
    }
    chunks.Add(R"({{"VC":{},"H":{},"PCS":[{}],"slots":[{}]}})", v++, each.home, members.text(),
               slots.text());
  }
  return chunks.text();
}

std::string PhysicalChunks(const RedoxDump& of) {
  std::map<std::uint32_t, std::uint32_t> virtual_of;
  std::uint32_t v = 0;
  for (const Virtual& each : of.layout.virtual_chunks()) {
    for (std::uint32_t i = 0; i < each.chunk_count; ++i) virtual_of[of.layout.chunk(each, i)] = v;
    ++v;
  }
  Members chunks;
  for (const auto& [chunk, in] : virtual_of) {
    const BlockMap::Block block = of.layout.blocks().block(chunk);
    chunks.Add(R"({{"PC":{},"VC":{},"H":{},"first":{},"files":{}}})", chunk, in,
               of.layout.virtual_chunks()[in].home, Raw(block.first), block.count);
  }
  return chunks.text();
}

std::string Buffers(const RedoxDump& of) {
  Members buffers;
  const auto& window = of.window();
  for (std::uint32_t node = 0; window.has_value() && node < of.nodes; ++node) {
    for (std::uint32_t home = 0; home < of.nodes; ++home) {
      if (home == node) continue;
      Members marks;
      for (const RedoxWindow::Mark& mark : window->Marks(node, home)) {
        const RedoxLayout::Slot& slot = of.layout.slots()[mark.slot];
        marks.Add(R"({{"request":{},"VC":{},"slot":{},"map":{}}})", mark.rank, slot.virtual_chunk,
                  mark.slot - of.layout.virtual_of(mark.slot).first_slot, mark.sent ? 1 : 0);
      }
      buffers.Add(R"({{"R":{},"H":{},"window":[{}]}})", node, home, marks.text());
    }
  }
  return buffers.text();
}

}  // namespace

std::string RedoxDump::Json() const {
  return fmt::format(
      R"({{"files":[{}],"virtual_chunks":[{}],"physical_chunks":[{}],"buffers":[{}]}})",
      Files(*this), VirtualChunks(*this), PhysicalChunks(*this), Buffers(*this));
}

}  // namespace headrace
