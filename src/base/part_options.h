#pragma once

// Options that a loader passes to its parts as they are: to the store, the engine, the connection
// to other nodes. LoaderOptions (loader_options.h) holds them. Plain structs.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/members.h"

namespace headrace {

// LoaderOptions::io that lets the first store that suits be chosen.
inline constexpr std::string_view kAnyStore = "auto";

// The advice in errors about a file that differs from its index entry. The dataset's format sets
// it.
struct FileRemedies {
  std::string changed = "index the dataset again";  // changed or removed
  std::string broken_link = "index the dataset again and leave this file out with skip=";
  std::string special = "index the dataset again and leave this file out with skip=";
};
HEADRACE_MEMBERS(FileRemedies, changed, broken_link, special)

// What to do with a sample that cannot be delivered: unreadable, damaged, undecodable.
enum class OnError : std::uint8_t {
  kRaise = 0,       // the step fails, with the error of its lowest slot that failed
  kSubstitute = 1,  // another sample, drawn from (seed, epoch, sample), takes its place
};

// Where a node listens for the other nodes of its job.
struct PeerListen {
  // An address of this machine, without a port, or with one. Beyond loopback only with certificates
  // or if `open_network` says so: without certificates whoever is on the network can read what the
  // nodes send each other.
  std::string address = "127.0.0.1";
  bool open_network = false;
  // Files in PEM format, all or none: then nodes prove to each other who they are (mutual TLS).
  std::string authority;    // who has signed the certificates of the nodes
  std::string certificate;  // of this node
  std::string key;          // of this node
  std::string name;         // in all certificates; empty: each has the node's address
};
HEADRACE_MEMBERS(PeerListen, address, open_network, authority, certificate, key, name)

}  // namespace headrace
