#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "store/testing/temp_files.h"
#include "tier/ssd_tier.h"
#include "tier/testing/manual_executor.h"
#include "tier/testing/tier_client.h"

namespace headrace {

// A tier's folder that tests open, close and damage. One thread.
class SsdFolder {
 public:
  explicit SsdFolder(const std::string& parent = {}, std::uint64_t capacity_units = 32)
      : files_(parent) {
    options_.folder = files_.folder() + "/tier";
    options_.capacity_bytes = capacity_units * 4096;
    options_.dataset = "dataset";
  }

  // The options of the next Open().
  [[nodiscard]] SsdTierOptions& options() { return options_; }

  Status Open() {
    tier_ = nullptr;
    HEADRACE_ASSIGN_OR_RETURN(tier_, SsdTier::Open(options_, executor_));
    return Status();
  }
  void Close() {
    executor_.RunAll();
    tier_ = nullptr;
  }

  [[nodiscard]] SsdTier& tier() { return *tier_; }
  [[nodiscard]] ManualExecutor& executor() { return executor_; }
  [[nodiscard]] TierPump pump() {
    return [this] { executor_.RunAll(); };
  }

  Status Insert(std::uint64_t sample, const std::string& bytes) {
    return InsertAndWait(*tier_, SampleId{sample}, bytes, pump());
  }
  // The bytes, or the error of the read; NotFound: there is no such entry.
  Result<std::string> Read(std::uint64_t sample) {
    const auto read = FindAndRead(*tier_, SampleId{sample}, pump());
    return read.has_value() ? *read : Status(StatusCode::kNotFound, "no entry");
  }

  // The folder for everything that a test changes, besides the tier itself.
  [[nodiscard]] const std::string& parent() const { return files_.folder(); }
  [[nodiscard]] std::string data_path() const { return PathOf(kTierDataName); }
  [[nodiscard]] std::string journal_path() const { return PathOf(kTierJournalName); }
  [[nodiscard]] std::string PathOf(const std::string& name) const {
    return options_.folder + "/" + name;
  }

 private:
  TempFiles files_;
  ManualExecutor executor_;
  SsdTierOptions options_;
  std::unique_ptr<SsdTier> tier_;
};

// The content of a file.
std::string ContentOf(const std::string& path);

}  // namespace headrace
