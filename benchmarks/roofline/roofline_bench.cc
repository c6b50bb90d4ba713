// What this machine's storage and memory give to the engine's own buffers, open flags, rings and
// queue depths: the bound for a loader. A tool with plain buffers understates it.
//
//   roofline_bench [FILE...] [--cold] [--warm] [--memory] [--make BYTES] [--block LIST]
//                  [--pattern LIST] [--depth LIST] [--threads LIST] [--method LIST] [--seconds N]
//                  [--rounds N] [--range X] [--seed N] [--buffered] [--json]
//
//   --cold    (without any of these three) reads of the device. Before each reading the files leave
//             the page cache, and cachestat(2) or mincore(2) must say so, else there is no figure;
//             the same after it. Side by side, at each depth: `store`, the store that a loader
//             opens, asked by a thread as the engine asks it, and `ring`, a bare io_uring with the
//             same flags and buffers. Only if --method asks for them: `fixed`, a ring with
//             registered buffers and files, which the store does not use; `small`, a ring with
//             buffers in pages of 4 KiB.
//   --warm    reads of the page cache, which must hold the files: `store` (ByteStore::ReadNow),
//             `pread` (bare preadv2, RWF_NOWAIT) and `gather` (copies from mapped files, as NumPy's
//             take), on each number of threads.
//   --memory  no files: `copy` (memcpy), `checksum` (the index's) and `copy_checksum` of staged
//   blocks into
//             the rows of a batch.
//
// A FILE that is not there is made with --make: random bytes, written to the device. Lists have
// commas; sizes may end in K, M or G, powers of 1024. Depths are of each thread.
//
// Each cell is measured for --seconds, cells in turn, until the range of its last five readings is
// within --range of their median; what has not settled after --rounds is `discarded` and has no
// figure. With fewer than five rounds the median of the readings is the figure: --rounds 1 gives
// one reading, for a benchmark that has rounds of its own. A reading continues where the previous
// one of that block size ended; --seed, else the clock, says where the first begins.
//
// Ends with 1 if a cell failed.

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "device_reads.h"
#include "memory_reads.h"
#include "places.h"
#include "read_files.h"
#include "rounds.h"

namespace headrace {
namespace {

constexpr std::uint64_t kDirectBlockBytes = 4096;  // for direct reads

// Of seeds that the clock gives: short enough to type.
constexpr std::uint64_t kSeedsMax = 1'000'000'000;

// Of all phases.
constexpr std::array<std::string_view, 9> kMethods = {
    "store", "ring", "fixed", "small", "pread", "gather", "copy", "checksum", "copy_checksum"};

struct Config {
  std::vector<std::string> files;
  std::map<std::string, bool> flags = {{"--cold", false},
                                       {"--warm", false},
                                       {"--memory", false},
                                       {"--buffered", false},
                                       {"--json", false}};
  std::map<std::string, std::string> values = {{"--make", "0"},
                                               {"--block", "4K,16K,100K,1M,4M"},
                                               {"--pattern", "random,sequential"},
                                               {"--depth", "64"},
                                               {"--threads", "1"},
                                               {"--method", ""},
                                               {"--seconds", "1"},
                                               {"--rounds", "20"},
                                               {"--range", "0.1"},
                                               {"--seed", ""}};

  // Of `values`:
  std::vector<std::uint64_t> blocks;
  std::vector<int> depths;
  std::vector<int> threads;
  std::vector<std::string> patterns;
  std::vector<std::string> methods;  // empty: the usual ones
  std::uint64_t make_bytes = 0;
  std::int64_t duration_ns = 0;
  std::uint64_t seed = 0;
  Protocol protocol;

  [[nodiscard]] bool Wants(const std::string& method, bool usual) const {
    if (methods.empty()) return usual;
    return std::find(methods.begin(), methods.end(), method) != methods.end();
  }
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

Result<double> ToNumber(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= 0)) {
    return InvalidArgument("{}: got '{}', must be a number", name, text);
  }
  return number;
}

Result<std::uint64_t> ToSize(const std::string& name, std::string text) {
  static const std::map<char, std::uint64_t> units = {{'K', kKiB}, {'M', kMiB}, {'G', kGiB}};
  std::uint64_t unit = 1;
  if (!text.empty() && units.contains(text.back())) {
    unit = units.at(text.back());
    text.pop_back();
  }
  HEADRACE_ASSIGN_OR_RETURN(const double number, ToNumber(name, text));
  return static_cast<std::uint64_t>(number * static_cast<double>(unit));
}

Result<std::vector<int>> ToCounts(const std::string& name, const std::string& list, int max) {
  std::vector<int> counts;
  for (const std::string& item : Split(list)) {
    HEADRACE_ASSIGN_OR_RETURN(const double number, ToNumber(name, item));
    if (number < 1 || number > max) {
      return InvalidArgument("{}: got {}, must be in [1, {}]", name, item, max);
    }
    counts.push_back(static_cast<int>(number));
  }
  return counts;
}

Status ParseValues(Config& config) {
  auto& values = config.values;
  for (const std::string& item : Split(values["--block"])) {
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t bytes, ToSize("--block", item));
    if (bytes == 0 || bytes % kDirectBlockBytes != 0 || bytes > kGiB) {
      return InvalidArgument("--block: got {}, must be a multiple of {} up to 1G", item,
                             kDirectBlockBytes);
    }
    config.blocks.push_back(bytes);
  }
  HEADRACE_ASSIGN_OR_RETURN(config.depths, ToCounts("--depth", values["--depth"], 4096));
  HEADRACE_ASSIGN_OR_RETURN(config.threads, ToCounts("--threads", values["--threads"], 1024));
  config.patterns = Split(values["--pattern"]);
  for (const std::string& pattern : config.patterns) {
    if (pattern == "random" || pattern == "sequential") continue;
    return InvalidArgument("--pattern: got '{}', must be random or sequential", pattern);
  }
  config.methods = Split(values["--method"]);
  for (const std::string& method : config.methods) {
    if (std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end()) continue;
    std::string names;
    for (const std::string_view name : kMethods) names.append(" ").append(name);
    return InvalidArgument("--method: got '{}', must be one of{}", method, names);
  }
  HEADRACE_ASSIGN_OR_RETURN(config.make_bytes, ToSize("--make", values["--make"]));
  HEADRACE_ASSIGN_OR_RETURN(const double seconds, ToNumber("--seconds", values["--seconds"]));
  config.duration_ns = static_cast<std::int64_t>(seconds * 1e9);
  HEADRACE_ASSIGN_OR_RETURN(const auto rounds, ToCounts("--rounds", values["--rounds"], 1000));
  config.protocol.rounds = rounds.empty() ? 0 : rounds.front();
  HEADRACE_ASSIGN_OR_RETURN(config.protocol.range_max, ToNumber("--range", values["--range"]));
  config.seed = static_cast<std::uint64_t>(MonotonicClock().NowNanos()) % kSeedsMax;
  if (!values["--seed"].empty()) {
    HEADRACE_ASSIGN_OR_RETURN(config.seed, ToSize("--seed", values["--seed"]));
  }
  if (config.blocks.empty() || config.depths.empty() || config.threads.empty() ||
      config.patterns.empty()) {
    return InvalidArgument("--block, --depth, --threads and --pattern: none may be empty");
  }
  return Status();
}

Result<Config> Parse(const std::vector<std::string>& arguments) {
  Config config;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (config.flags.contains(argument)) {
      config.flags[argument] = true;
    } else if (config.values.contains(argument) && i + 1 < arguments.size()) {
      config.values[argument] = arguments[++i];
    } else if (argument.starts_with("--")) {
      return InvalidArgument("unknown option, or one without its value: {}", argument);
    } else {
      config.files.push_back(argument);
    }
  }
  HEADRACE_RETURN_IF_ERROR(ParseValues(config));
  bool& cold = config.flags["--cold"];
  cold = cold || (!config.flags["--warm"] && !config.flags["--memory"]);
  if (config.files.empty() && (cold || config.flags["--warm"])) {
    return InvalidArgument("FILE: --cold and --warm need at least one");
  }
  return config;
}

Status MakeMissing(const Config& config) {
  for (const std::string& path : config.files) {
    struct stat stat = {};
    if (::stat(path.c_str(), &stat) == 0) continue;
    if (config.make_bytes == 0) {
      return InvalidArgument("FILE: {} is not there; --make BYTES makes it", path);
    }
    std::fprintf(stderr, "making %s: %s\n", path.c_str(), FormatBytes(config.make_bytes).c_str());
    HEADRACE_RETURN_IF_ERROR(MakeRandomFile(path, config.make_bytes));
  }
  return Status();
}

// Readings of the same blocks share their Places: each continues where the previous one ended.
class Measurements {
 public:
  static Result<std::unique_ptr<Measurements>> Make(const Config& config) {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ReadFiles> files, ReadFiles::Open(config.files));
    const std::uint64_t block = *std::max_element(config.blocks.begin(), config.blocks.end());
    const int depth = *std::max_element(config.depths.begin(), config.depths.end());
    const int threads = *std::max_element(config.threads.begin(), config.threads.end());
    const std::uint64_t bytes =
        block * static_cast<std::uint64_t>(depth) * static_cast<std::uint64_t>(threads);
    HEADRACE_ASSIGN_OR_RETURN(
        DeviceReads device,
        DeviceReads::Make(*files, config.flags.at("--cold") ? bytes : kDirectBlockBytes,
                          config.flags.at("--buffered")));
    HEADRACE_ASSIGN_OR_RETURN(MemoryReads memory, MemoryReads::Make(*files, threads, block));
    return std::unique_ptr<Measurements>(
        new Measurements(config, std::move(files), std::move(device), std::move(memory)));
  }

  std::vector<Row> ColdRows() {
    static const std::vector<std::pair<std::string, DeviceMethod>> methods = {
        {"store", DeviceMethod::kStore},
        {"ring", DeviceMethod::kRing},
        {"fixed", DeviceMethod::kFixed},
        {"small", DeviceMethod::kSmall}};
    std::vector<Row> rows;
    for (Row& row : Loads("cold", config_.patterns, config_.depths)) {
      row.bare = "ring";
      for (const auto& [name, method] : methods) {
        if (!config_.Wants(name, name == "store" || name == "ring")) continue;
        row.cells.push_back(
            {name, [this, method = method, load = row.load, &places = PlacesOf(row)] {
               return device_.Measure(method, load, places, config_.duration_ns);
             }});
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  std::vector<Row> WarmRows() {
    static const std::vector<std::pair<std::string, CacheMethod>> methods = {
        {"store", CacheMethod::kStore},
        {"pread", CacheMethod::kPread},
        {"gather", CacheMethod::kGather}};
    std::vector<Row> rows;
    for (Row& row : Loads("warm", config_.patterns, {0})) {
      row.bare = "pread";
      for (const auto& [name, method] : methods) {
        if (!config_.Wants(name, true)) continue;
        row.cells.push_back(
            {name, [this, method = method, load = row.load, &places = PlacesOf(row)] {
               return memory_.MeasureCache(method, load, places, config_.duration_ns);
             }});
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  std::vector<Row> MemoryRows() {
    static const std::vector<std::pair<std::string, CopyMethod>> methods = {
        {"copy", CopyMethod::kCopy},
        {"checksum", CopyMethod::kChecksum},
        {"copy_checksum", CopyMethod::kCopyChecksum}};
    std::vector<Row> rows;
    for (Row& row : Loads("memory", {"random"}, {0})) {
      for (const auto& [name, method] : methods) {
        if (!config_.Wants(name, true)) continue;
        row.cells.push_back({name, [this, method = method, load = row.load] {
                               return memory_.MeasureCopy(method, load, config_.seed,
                                                          config_.duration_ns);
                             }});
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  [[nodiscard]] const ReadFiles& files() const { return *files_; }
  [[nodiscard]] const std::string& store_name() const { return device_.store_name(); }

 private:
  Measurements(const Config& config, std::unique_ptr<ReadFiles> files, DeviceReads device,
               MemoryReads memory)
      : config_(config),
        files_(std::move(files)),
        device_(std::move(device)),
        memory_(std::move(memory)) {}

  [[nodiscard]] std::vector<Row> Loads(const std::string& phase,
                                       const std::vector<std::string>& patterns,
                                       const std::vector<int>& depths) const {
    std::vector<Row> rows;
    for (const std::string& pattern : patterns) {
      for (const std::uint64_t block : config_.blocks) {
        for (const int depth : depths) {
          for (const int threads : config_.threads) {
            rows.push_back({phase, pattern, {block, depth, threads}, {}, {}});
          }
        }
      }
    }
    return rows;
  }

  Places& PlacesOf(const Row& row) {
    std::unique_ptr<Places>& places = places_[{row.pattern, row.load.block_bytes}];
    if (places == nullptr) {
      places = std::make_unique<Places>(*files_, row.load.block_bytes, row.pattern == "random",
                                        config_.seed);
    }
    return *places;
  }

  const Config& config_;
  const std::unique_ptr<ReadFiles> files_;
  DeviceReads device_;
  MemoryReads memory_;
  std::map<std::pair<std::string, std::uint64_t>, std::unique_ptr<Places>> places_;
};

// Bytes of this process in huge pages: whether the arenas got any. Empty if the system cannot tell.
std::optional<std::uint64_t> HugePageBytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    std::uint64_t kilobytes = 0;
    if (word == "AnonHugePages:" && file >> kilobytes) return kilobytes * kKiB;
  }
  return std::nullopt;
}

void Print(const Config& config, const Measurements& measurements, const std::vector<Row>& rows) {
  const std::optional<std::uint64_t> huge = HugePageBytes();
  double load[1] = {0};
  (void)::getloadavg(load, 1);
  const double seconds = static_cast<double>(config.duration_ns) * 1e-9;
  if (!config.flags.at("--json")) {
    fmt::print(
        "{}\n{} of files, seed {}, {:g} s a reading, {} in huge pages, store {}, load {:.2f}\n",
        TableOf(rows, config.protocol), FormatBytes(measurements.files().bytes()), config.seed,
        seconds, huge.has_value() ? FormatBytes(*huge) : "unknown bytes",
        measurements.store_name().empty() ? "not read cold" : measurements.store_name(), load[0]);
    return;
  }
  std::string files;
  for (const std::string& path : config.files) {
    files += fmt::format("{}{}", files.empty() ? "" : ", ", JsonText(path));
  }
  fmt::print(
      "{{\"benchmark\": \"roofline\", \"files\": [{}], \"file_bytes\": {}, \"seed\": {}, "
      "\"seconds\": {:g}, \"rounds\": {}, \"range_max\": {}, \"buffered\": {}, \"store\": {}, "
      "\"huge_page_bytes\": {}, \"load\": {:.2f}, \"rows\": {}}}\n",
      files, measurements.files().bytes(), config.seed, seconds, config.protocol.rounds,
      config.protocol.range_max, config.flags.at("--buffered"), JsonText(measurements.store_name()),
      huge.has_value() ? std::to_string(*huge) : "null", load[0], JsonOf(rows, config.protocol));
}

Result<bool> Run(const Config& config) {
  HEADRACE_RETURN_IF_ERROR(MakeMissing(config));
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Measurements> measurements,
                            Measurements::Make(config));
  std::vector<Row> rows;
  const auto measure = [&](const std::string& phase, std::vector<Row> more) {
    MeasureRows(more, config.protocol, [&phase](int round) {
      std::fprintf(stderr, "%s, round %d\n", phase.c_str(), round);
    });
    for (Row& row : more) {
      if (!row.cells.empty()) rows.push_back(std::move(row));
    }
  };
  if (config.flags.at("--memory")) measure("memory", measurements->MemoryRows());
  if (config.flags.at("--cold")) measure("cold", measurements->ColdRows());
  if (config.flags.at("--warm")) {
    // Each reading checks it again: if the files are not warm, its cell says why.
    static_cast<void>(measurements->files().MakeWarm());
    measure("warm", measurements->WarmRows());
  }
  if (rows.empty()) return InvalidArgument("--method: none of these phases has such a method");
  Print(config, *measurements, rows);
  return std::none_of(rows.begin(), rows.end(), [](const Row& row) {
    return std::any_of(row.cells.begin(), row.cells.end(),
                       [](const Cell& cell) { return !cell.failure.ok(); });
  });
}

int Main(const std::vector<std::string>& arguments) {
  const Result<Config> config = Parse(arguments);
  if (!config.ok()) {
    std::fprintf(stderr, "roofline_bench: %s\n", std::string(config.status().message()).c_str());
    return 2;
  }
  const Result<bool> all = Run(config.value());
  if (!all.ok()) std::fprintf(stderr, "roofline_bench: %s\n", all.status().ToString().c_str());
  return all.ok() && all.value() ? 0 : 1;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  return headrace::Main(std::vector<std::string>(argv + 1, argv + argc));
}
