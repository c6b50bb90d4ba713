#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test_executor.h"
#include "gtest/gtest.h"
#include "store/objects/object_store.h"
#include "store/objects/testing/object_files.h"
#include "store/testing/reader.h"

namespace headrace {

// A store over objects that the fake fetcher serves.
class ObjectStoreFixture : public testing::Test {
 protected:
  // `faults`: see fake_fetcher.cc.
  void Add(std::uint64_t id, std::size_t size, const std::string& faults = {}) {
    bytes_.resize(std::max<std::size_t>(bytes_.size(), id + 1));
    bytes_[id] = RandomBytes(id, size);
    files_.Add(ObjectId{id}, bytes_[id], faults);
  }
  void Open(ObjectStoreOptions options = {}) {
    options.fetchers.command = files_.fetcher();
    store_ = nullptr;
    store_ = ObjectStore::Open(files_, executor_, std::move(options)).value();
  }
  ReadAnswer Read(std::uint64_t id, ByteRange range, std::stop_token stop = {}) {
    return ReadAll(*store_, {{ObjectId{id}, range}}, std::move(stop)).front();
  }
  ReadAnswer Read(std::uint64_t id) { return Read(id, {0, bytes_[id].size()}); }
  void ExpectRight(const std::vector<Extent>& extents) {
    const std::vector<ReadAnswer> answers = ReadAll(*store_, extents);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.ToString();
      const ByteRange range = extents[i].range;
      ASSERT_TRUE(answers[i].bytes ==
                  bytes_[Raw(extents[i].object)].substr(range.offset, range.size));
    }
  }
  void ExpectRight(std::uint64_t id) { ExpectRight({{ObjectId{id}, {0, bytes_[id].size()}}}); }
  // "reading s3://... bytes [0, 100): ".
  [[nodiscard]] std::string Reading(std::uint64_t id) const {
    return "reading " + files_.file(ObjectId{id}).value().path + " bytes [0, " +
           std::to_string(bytes_[id].size()) + "): ";
  }

  ObjectFiles files_;
  std::vector<std::string> bytes_;  // of the objects
  TestExecutor executor_{1};
  std::unique_ptr<ObjectStore> store_;
};

}  // namespace headrace
