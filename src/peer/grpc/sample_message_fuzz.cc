// Bytes of any sort are a message of samples, or an error: never a crash. What protobuf and
// ReadSampleAnswers() both read, they read alike, however it is cut into pieces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "peer/grpc/proto/peers.pb.h"
#include "peer/grpc/sample_message.h"

namespace {

std::string TextOf(headrace::Pieces part) {
  std::string text(part.left(), '?');
  part.CopyTo(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 16;
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size)).subspan(1);
  headrace::peers::v1::SampleAnswers expected;
  const bool is_message = expected.ParseFromArray(rest.data(), static_cast<int>(rest.size()));
  std::vector<std::span<const std::byte>> pieces;
  while (!rest.empty()) {
    pieces.push_back(rest.first(std::min(piece, rest.size())));
    rest = rest.subspan(pieces.back().size());
  }
  const auto read = headrace::ReadSampleAnswers(pieces);
  if (!read.ok() || !is_message) return 0;
  HEADRACE_CHECK(read.value().size() == static_cast<std::size_t>(expected.answers_size()));
  for (int i = 0; i < expected.answers_size(); ++i) {
    const auto& answer = expected.answers(i);
    const headrace::ReceivedAnswer& got = read.value()[static_cast<std::size_t>(i)];
    HEADRACE_CHECK(got.number == answer.number() && got.code == answer.code() &&
                   got.offset == answer.offset() && got.checksum == answer.checksum());
    HEADRACE_CHECK(TextOf(got.part) == answer.part());
    HEADRACE_CHECK(got.reason ==
                   answer.reason().substr(0, headrace::SampleAnswersWriter::kReasonBytesMax));
  }
  return 0;
}
