#include "message_recorder.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "headrace/status.h"

// The functions that --wrap names: a call of Status::Status() and Status::WithContext() arrives at
// the __wrap_, the function itself is the __real_.
namespace headrace::testing {

void MakeStatus(Status* self, StatusCode code, std::string message) __asm__(
    "__real__ZN8headrace6StatusC1ENS_10StatusCodeENSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEE");
void NotingMakeStatus(Status* self, StatusCode code, std::string message) __asm__(
    "__wrap__ZN8headrace6StatusC1ENS_10StatusCodeENSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEE");
Status WithContext(const Status* self, std::string_view context) __asm__(
    "__real__ZNK8headrace6Status11WithContextESt17basic_string_viewIcSt11char_traitsIcEE");
Status NotingWithContext(const Status* self, std::string_view context) __asm__(
    "__wrap__ZNK8headrace6Status11WithContextESt17basic_string_viewIcSt11char_traitsIcEE");

namespace {

struct Notes {
  std::atomic<bool> started = false;
  std::mutex mutex;
  std::unordered_set<std::string> known;  // without numbers
  std::vector<std::string> texts;
};

Notes& NotesOfProcess() {
  static auto* const notes = new Notes;  // Threads may fail until the process ends.
  return *notes;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string WithoutNumbers(std::string_view text) {
  std::string without(text);
  std::erase_if(without, IsDigit);
  return without;
}

// Bytes beyond ASCII are written as if of Latin-1: a message may be cut within a character.
std::string JsonOf(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      json += c;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
    json += escaped;
  }
  return json + '"';
}

}  // namespace

void NotingMakeStatus(Status* self, StatusCode code, std::string message) {
  MessageRecorder::OfProcess().Note(message);
  MakeStatus(self, code, std::move(message));
}

Status NotingWithContext(const Status* self, std::string_view context) {
  Status status = WithContext(self, context);
  if (!status.ok()) MessageRecorder::OfProcess().Note(status.message());
  return status;
}

MessageRecorder& MessageRecorder::OfProcess() {
  static MessageRecorder recorder;
  return recorder;
}

void MessageRecorder::Start() { NotesOfProcess().started = true; }

void MessageRecorder::Note(std::string_view message) {
  Notes& notes = NotesOfProcess();
  if (!notes.started) return;
  message = message.substr(0, kTextMax);
  std::string key = WithoutNumbers(message);
  const std::lock_guard lock(notes.mutex);
  if (notes.texts.size() >= kTextsMax || !notes.known.insert(std::move(key)).second) return;
  notes.texts.emplace_back(message);
}

void MessageRecorder::Write(const std::filesystem::path& file) {
  Notes& notes = NotesOfProcess();
  const std::lock_guard lock(notes.mutex);
  if (notes.texts.empty()) return;
  std::sort(notes.texts.begin(), notes.texts.end());
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file);
  out << R"({"files": {}, "made": [], "printed": [)";
  for (std::size_t i = 0; i < notes.texts.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << JsonOf(notes.texts[i]);
  }
  out << "]}\n";
}

std::filesystem::path FileOfMessages(const std::filesystem::path& folder, std::string_view program,
                                     std::string sources) {
  std::replace(sources.begin(), sources.end(), ',', '+');
  program.remove_prefix(program.rfind('/') + 1);
  return folder / ("core-" + std::string(program) + "-" + sources + ".json");
}

}  // namespace headrace::testing
