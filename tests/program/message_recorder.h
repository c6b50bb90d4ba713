#pragma once

// Notes each message of a failed Status that the tests of this process make, for tools/messages.
// The linker leads their calls here (tests/CMakeLists.txt), so that the product knows nothing of
// it.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace headrace::testing {

// Thread safety: thread-safe. Cost: nothing until Start() was called.
class MessageRecorder {
 public:
  static MessageRecorder& OfProcess();

  void Start();

  // Of messages that differ in their numbers alone the first is kept.
  void Note(std::string_view message);

  // Writes what was noted, in the form that tests/message_recorder.py writes.
  void Write(const std::filesystem::path& file);

  static constexpr std::size_t kTextsMax = 20'000;
  static constexpr std::size_t kTextMax = 2'000;  // bytes

 private:
  MessageRecorder() = default;
};

// Where the messages go of a process that runs the tests of `sources`, file names by commas; in
// `folder`.
std::filesystem::path FileOfMessages(const std::filesystem::path& folder, std::string_view program,
                                     std::string sources);

}  // namespace headrace::testing
