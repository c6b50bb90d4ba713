#include "node/links/link_commands.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/format/errors.h"
#include "node/links/link_probe.h"

namespace headrace {
namespace {

constexpr std::size_t kNodesMax = 65'536;

// One command, and its answer without "error".
Result<std::string> Obey(LinkProbe& probe, const std::string& line, std::istream& in) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "connect") {
    PeerGroup group;
    std::size_t count = 0;
    words >> group.node >> group.answer_ns >> group.begin_ns >> count;
    if (words.fail() || count > kNodesMax) {
      return InvalidArgument(
          "links: got the command '{}', must be connect NODE ANSWER_NS BEGIN_NS "
          "COUNT",
          line);
    }
    group.addresses.resize(count);
    for (std::string& address : group.addresses) std::getline(in, address);
    std::getline(in, group.token);
    HEADRACE_RETURN_IF_ERROR(probe.Connect(std::move(group)));
    return std::string("ok");
  }
  if (command == "meet") {
    HEADRACE_RETURN_IF_ERROR(probe.Meet([] { return true; }));
    return std::string("ok");
  }
  LinkLoad load;
  LinkTime time;
  words >> load.bytes >> load.in_flight >> time.duration_ns >> time.duration_max_ns;
  if (command != "measure" || words.fail()) {
    return InvalidArgument(
        "links: got the command '{}', must be connect, meet or measure BYTES "
        "IN_FLIGHT NS NS_MAX",
        line);
  }
  HEADRACE_ASSIGN_OR_RETURN(const LinkSlice slice, probe.Measure(load, time));
  return fmt::format("slice {:.6g} {} {} {:.6f}", slice.rate, slice.operations, slice.bytes,
                     slice.cpu_seconds);
}

}  // namespace

Status ServeLinkCommands(const PeerListen& listen, std::istream& in,
                         const std::function<void(const std::string&)>& say) {
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<LinkProbe> probe, LinkProbe::Make(listen));
  say("address " + probe->address());
  for (std::string line; std::getline(in, line);) {
    const Result<std::string> answer = Obey(*probe, line, in);
    if (answer.ok()) {
      say(answer.value());
      continue;
    }
    std::string message(answer.status().message());
    std::ranges::replace(message, '\n', ' ');
    say(fmt::format("error {} {}", static_cast<int>(answer.status().code()), message));
  }
  return Status();
}

}  // namespace headrace
