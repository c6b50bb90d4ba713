// headrace-node: the process that a node's ranks share. Ranks start it themselves; `headrace node`
// runs it as a service. Says nothing but errors.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/papers.h"
#include "headrace/status.h"
#include "node/links/link_commands.h"
#include "node/server/serve_node.h"
#include "store/helper_command.h"

namespace {

using headrace::NodeServerOptions;
using headrace::PeerListen;
using headrace::Result;
using headrace::Status;
using headrace::StatusCode;

constexpr std::string_view kUsage =
    "usage: headrace-node --name SOCKET [--service] [--memory BYTES] [--share BYTES]\n"
    "                     [--helper ARGUMENT]...\n"
    "       headrace-node --links ADDRESS [--open-network]\n"
    "                     [--authority FILE --certificate FILE --key FILE]\n"
    "                     [--certificate-name NAME]\n"
    "Hosts the loaders of the ranks of one node. Started by a loader with Job(node=...)\n"
    "and by `headrace node`. With --links it measures what other nodes give, for `headrace\n"
    "profile --links`: by commands that it reads.\n";

Status ParseBytes(std::string_view option, std::string_view value, std::uint64_t& bytes) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
  if (error == std::errc() && end == value.data() + value.size()) return Status();
  return Status(StatusCode::kInvalidArgument,
                std::string(option) + ": got '" + std::string(value) +
                    "', must be a number of bytes below 2^64, such as 4294967296");
}

Result<NodeServerOptions> Parse(int count, char** arguments) {
  NodeServerOptions options;
  std::vector<std::string> helper;  // a program and arguments
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const bool has_value = i + 1 < count;
    if (argument == "--service") {
      options.service = true;
    } else if (argument == "--name" && has_value) {
      options.name = arguments[++i];
    } else if (argument == "--helper" && has_value) {
      helper.emplace_back(arguments[++i]);
    } else if ((argument == "--memory" || argument == "--share") && has_value) {
      std::uint64_t& bytes = argument == "--share" ? options.share_bytes : options.memory_bytes;
      HEADRACE_RETURN_IF_ERROR(ParseBytes(argument, arguments[++i], bytes));
    } else {
      return Status(StatusCode::kInvalidArgument, "argument '" + std::string(argument) +
                                                      "' is unknown or has no value; see --help");
    }
  }
  if (options.name.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "--name SOCKET is missing: give the name of the socket to listen on");
  }
  headrace::SetHelperCommand(std::move(helper));
  return options;
}

// The options after --links.
Result<PeerListen> ParseLinks(int count, char** arguments) {
  PeerListen listen;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    std::string* value = argument == "--links"              ? &listen.address
                         : argument == "--authority"        ? &listen.authority
                         : argument == "--certificate"      ? &listen.certificate
                         : argument == "--key"              ? &listen.key
                         : argument == "--certificate-name" ? &listen.name
                                                            : nullptr;
    if (argument == "--open-network") {
      listen.open_network = true;
    } else if (value != nullptr && i + 1 < count) {
      *value = arguments[++i];
    } else {
      return Status(StatusCode::kInvalidArgument,
                    "argument '" + std::string(argument) +
                        "' of --links is unknown or has no value; see --help");
    }
  }
  return listen;
}

void Complain(const Status& status) {
  std::fprintf(stderr, "headrace-node: %s\n", std::string(status.message()).c_str());
}

void Say(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

int MeasureLinks(int count, char** arguments) {
  const Result<PeerListen> listen = ParseLinks(count, arguments);
  if (!listen.ok()) {
    Complain(listen.status());
    return 2;
  }
  const Status served = headrace::ServeLinkCommands(listen.value(), std::cin, Say);
  if (served.ok()) return 0;
  Complain(served);
  return 3;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::strcmp(arguments[1], "--help") == 0) {
    std::fwrite(kUsage.data(), 1, kUsage.size(), stdout);
    return 0;
  }
  if (count > 1 && std::strcmp(arguments[1], "--links") == 0) {
    return MeasureLinks(count, arguments);
  }
  headrace::RegisterPapers();
  const Result<NodeServerOptions> options = Parse(count, arguments);
  if (!options.ok()) {
    Complain(options.status());
    return 2;
  }
  if (const Status served = headrace::ServeNode(options.value()); !served.ok()) {
    Complain(served);
    return 3;
  }
  return 0;
}
