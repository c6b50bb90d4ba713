// IndexContents and IndexBuilder, which write indexes, and build_folder_index.

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "base/coding/coding.h"
#include "base/executor.h"
#include "base/format/errors.h"
#include "base/unique_fd.h"
#include "convert/buffer.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "headrace/folder_index.h"
#include "headrace/index_writer.h"
#include "index/archive/tar_members.h"
#include "index/folder/file_status.h"
#include "index/folder/folder_threads.h"
#include "index/index_builder.h"
#include "loader/machine/thread_executor.h"
#include "module.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// A list is an array whose first dimension differs from sample to sample.
FieldKind KindFromName(const std::string& name) {
  if (name == "bytes") return FieldKind::kBytes;
  if (name == "image") return FieldKind::kImage;
  if (name == "array" || name == "list") return FieldKind::kArray;
  if (name == "text") return FieldKind::kText;
  ThrowStatus({StatusCode::kInvalidArgument,
               "field kind: got \"" + name + "\", must be bytes, image, array, list or text"});
}

DType DTypeOrThrow(const std::string& name) {
  const std::optional<DType> dtype = DTypeFromName(name);
  if (!dtype) {
    ThrowStatus({StatusCode::kInvalidArgument, "field dtype: \"" + name + "\" is not known"});
  }
  return *dtype;
}

constexpr std::size_t kStatusAtOnce = 4096;  // between two looks for Ctrl-C

using FilesFound = nb::typed<nb::callable, nb::object(std::uint64_t)>;

// Threads that read the status of files; nullptr, for one: the calling thread does it.
std::unique_ptr<Executor> ThreadsOrThrow(int jobs) {
  if (jobs <= 1) return nullptr;
  return ValueOrThrow(ThreadExecutor::Make({.threads = jobs, .name = "hr-index"}));
}

// Walks `root` and writes its index to `path`, without the files and folders that match `skip`.
// Calls `progress` (None or a callable) now and then with the number of files found. An exception
// of `progress`, and Ctrl-C, end the walk and are raised here.
void BuildFolder(const Text& root, const Text& path, const std::optional<FilesFound>& progress,
                 const std::vector<Text>& skip, int jobs) {
  const std::string root_name = root.bytes();
  const std::string path_name = path.bytes();
  std::vector<std::string> skipped;
  skipped.reserve(skip.size());
  for (const Text& each : skip) skipped.push_back(each.bytes());
  const std::unique_ptr<Executor> threads = ThreadsOrThrow(jobs);
  std::optional<nb::python_error> raised;  // dies under the GIL: declared outside its release
  const auto tell = [&](std::uint64_t files) {
    const GilAcquire acquire;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (progress) (*progress)(files);
      return true;
    } catch (nb::python_error& error) {
      raised.emplace(std::move(error));
      return false;
    }
  };
  Status status;
  {
    const GilRelease release;
    const Result<IndexContents> contents =
        BuildFolderIndex(root_name, tell, skipped, threads.get());
    status = contents.ok() ? WriteIndex(contents.value(), path_name) : contents.status();
  }
  if (raised) throw nb::python_error(std::move(*raised));
  ThrowIfError(status);
}

// Of each name, below `folder` or absolute: the size, -1 if there is no regular file, and the time.
std::tuple<OutArray<std::int64_t>, OutArray<std::int64_t>> FilesFoundIn(
    const Text& folder, const std::vector<Text>& names, int jobs) {
  const std::string path = folder.bytes();
  std::vector<std::string> files;
  files.reserve(names.size());
  for (const Text& each : names) files.push_back(each.bytes());
  const std::unique_ptr<Executor> threads =
      ThreadsOrThrow(files.size() > kStatusAtOnce / 2 ? jobs : 1);
  std::vector<std::int64_t> sizes(files.size(), -1);
  std::vector<std::int64_t> mtimes_ns(files.size());
  const UniqueFd at(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t first = 0; at && first < files.size(); first += kStatusAtOnce) {
    const std::size_t count = std::min(kStatusAtOnce, files.size() - first);
    const auto some = std::span(files).subspan(first, count);
    const std::vector<FileStatus> found =
        WithoutGil([&] { return StatusOfAll(at.get(), some, threads.get()); });
    for (std::size_t i = 0; i < count; ++i) {
      if (found[i].type != FileType::kRegular) continue;
      sizes[first + i] = static_cast<std::int64_t>(found[i].size);
      mtimes_ns[first + i] = found[i].mtime_ns;
    }
    if (!SignalsPass()) throw nb::python_error();
  }
  return {ToArray(std::move(sizes)), ToArray(std::move(mtimes_ns))};
}

// Regular files of a tar from `at` on: (names, each followed by a zero byte, offsets, sizes, where
// the next header lies, whether it may be plain). See ReadTarMembers().
std::tuple<nb::bytes, OutArray<std::int64_t>, OutArray<std::int64_t>, std::uint64_t, bool>
TarMembersFrom(int fd, std::uint64_t file_bytes, std::uint64_t at, std::size_t members_max) {
  TarMembers found = WithoutGil([&] { return ReadTarMembers(fd, file_bytes, at, members_max); });
  return {nb::bytes(found.names.data(), found.names.size()), ToArray(std::move(found.offsets)),
          ToArray(std::move(found.sizes)), found.next, found.is_plain};
}

std::vector<IndexContents::Object> ToObjects(const std::vector<Text>& names,
                                             const InArray<std::uint64_t>& sizes,
                                             const InArray<std::int64_t>& mtimes_ns) {
  if (names.size() != sizes.size() || names.size() != mtimes_ns.size()) {
    ThrowStatus(
        {StatusCode::kInvalidArgument, "objects: names, sizes and mtimes differ in number"});
  }
  std::vector<IndexContents::Object> objects;
  objects.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    objects.push_back({names[i].bytes(), sizes.data()[i], mtimes_ns.data()[i]});
  }
  return objects;
}

void AddObjects(IndexContents& self, const std::vector<Text>& names,
                const InArray<std::uint64_t>& sizes, const InArray<std::int64_t>& mtimes_ns) {
  std::vector<IndexContents::Object> objects = ToObjects(names, sizes, mtimes_ns);
  std::ranges::move(objects, std::back_inserter(self.objects));
}

struct ExtentColumns {
  InArray<std::uint64_t> objects;
  InArray<std::uint64_t> offsets;
  InArray<std::uint64_t> sizes;

  [[nodiscard]] Extent At(std::size_t i) const {
    return {ObjectId{objects.data()[i]}, {offsets.data()[i], sizes.data()[i]}};
  }
};

ExtentColumns ColumnsOrThrow(
    const std::tuple<InArray<std::uint64_t>, InArray<std::uint64_t>, InArray<std::uint64_t>>& in,
    std::size_t count) {
  ExtentColumns columns{std::get<0>(in), std::get<1>(in), std::get<2>(in)};
  if (columns.objects.size() != count || columns.offsets.size() != count ||
      columns.sizes.size() != count) {
    ThrowStatus(
        InvalidArgument("extents: objects, offsets and sizes must have {} entries each", count));
  }
  return columns;
}

using ExtentTuple =
    std::tuple<InArray<std::uint64_t>, InArray<std::uint64_t>, InArray<std::uint64_t>>;

// `type`: (kind, dtype, shape); of a list, those of an element
using FieldType = std::tuple<Text, Text, std::vector<std::uint64_t>>;

FieldInfo ToFieldInfo(const Text& name, const FieldType& type) {
  FieldInfo info;
  info.name = name.bytes();
  info.kind = KindFromName(std::get<0>(type).bytes());
  info.dtype = DTypeOrThrow(std::get<1>(type).bytes());
  info.shape = std::get<2>(type);
  info.is_list = std::get<0>(type).bytes() == "list";
  return info;
}

// None, and the stored type itself: batches hold what is stored.
std::optional<DType> BatchDType(const FieldInfo& info, const std::optional<Text>& name) {
  if (!name) return std::nullopt;
  const DType dtype = DTypeOrThrow(name->bytes());
  return dtype == info.dtype ? std::nullopt : std::optional(dtype);
}

// How the samples of a field are decoded: (coding, whether they are shuffled, bytes of the header,
// whether each has a size).
using Decoding = std::tuple<Text, bool, std::uint32_t, bool>;

void SetDecoding(const Decoding& decoding, FieldInfo& info) {
  info.coding = ValueOrThrow(CodingOf(std::get<0>(decoding).bytes()));
  info.is_shuffled = std::get<1>(decoding);
  info.header_bytes = std::get<2>(decoding);
  info.has_decoded_sizes = std::get<3>(decoding);
}

// Of the field that was added last.
void SetLastDecoding(IndexContents& self, const Decoding& decoding,
                     const std::optional<InArray<std::uint64_t>>& decoded_sizes) {
  if (self.fields.empty()) {
    ThrowStatus({StatusCode::kInvalidArgument, "decoding: there is no field"});
  }
  IndexContents::Field& field = self.fields.back();
  SetDecoding(decoding, field.info);
  if (!decoded_sizes) return;
  field.decoded_sizes.assign(decoded_sizes->data(), decoded_sizes->data() + decoded_sizes->size());
}

void AddExtentField(IndexContents& self, const Text& name, const FieldType& type,
                    const ExtentTuple& extents,
                    const std::optional<InArray<std::uint64_t>>& checksums,
                    const std::optional<Text>& batch_dtype) {
  IndexContents::Field field;
  field.info = ToFieldInfo(name, type);
  field.info.batch_dtype = BatchDType(field.info, batch_dtype);
  const ExtentColumns columns = ColumnsOrThrow(extents, self.sample_count);
  field.extents.reserve(self.sample_count);
  for (std::size_t i = 0; i < self.sample_count; ++i) field.extents.push_back(columns.At(i));
  if (checksums) {
    field.info.has_checksums = true;
    field.checksums.assign(checksums->data(), checksums->data() + checksums->size());
  }
  self.fields.push_back(std::move(field));
}

// `lengths`: the bytes of each value, if they differ.
void AddInlineField(IndexContents& self, const Text& name, const FieldType& type, nb::handle values,
                    const std::optional<InArray<std::uint64_t>>& lengths) {
  IndexContents::Field field;
  field.info = ToFieldInfo(name, type);
  field.info.is_inline = true;
  if (lengths) {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < lengths->size(); ++i) {
      end += lengths->data()[i];
      field.inline_ends.push_back(end);
    }
  }
  const Buffer buffer(values);
  field.inline_values.assign(buffer.bytes().begin(), buffer.bytes().end());
  self.fields.push_back(std::move(field));
}

void AddBlocks(IndexContents& self, const InArray<std::uint64_t>& sample_counts,
               const ExtentTuple& extents, const InArray<std::uint64_t>& checksums) {
  const std::size_t n = sample_counts.size();
  const ExtentColumns columns = ColumnsOrThrow(extents, n);
  if (checksums.size() != n) {
    ThrowStatus({StatusCode::kInvalidArgument, "blocks: one checksum for each is needed"});
  }
  std::uint64_t first =
      self.blocks.empty() ? 0
                          : Raw(self.blocks.back().first_sample) + self.blocks.back().sample_count;
  for (std::size_t i = 0; i < n; ++i) {
    self.blocks.push_back(
        {SampleId{first}, sample_counts.data()[i], columns.At(i), checksums.data()[i]});
    first += sample_counts.data()[i];
  }
}

// An IndexBuilder, until it was published or discarded.
// Thread safety: of several threads that call it at a time, all but one get FailedPrecondition.
class PyIndexBuilder {
 public:
  PyIndexBuilder(const Text& path, const Text& root)
      : builder_(ValueOrThrow(IndexBuilder::Create(path.bytes(), root.bytes()))) {}

  std::size_t AddField(const Text& name, const FieldType& type, bool is_inline, bool checksums,
                       const std::optional<Text>& batch_dtype,
                       const std::optional<Decoding>& decoding) {
    const InUse in_use(*this);
    FieldInfo info = ToFieldInfo(name, type);
    if (decoding) SetDecoding(*decoding, info);
    info.is_inline = is_inline;
    info.has_checksums = checksums;
    info.batch_dtype = BatchDType(info, batch_dtype);
    return ValueOrThrow(builder().AddField(info));
  }

  void AddObjects(const std::vector<Text>& names, const InArray<std::uint64_t>& sizes,
                  const InArray<std::int64_t>& mtimes_ns) {
    const InUse in_use(*this);
    const std::vector<IndexContents::Object> objects = ToObjects(names, sizes, mtimes_ns);
    IndexBuilder& target = builder();
    RunReleased([&] { return target.AddObjects(objects); });
  }

  void AddExtents(std::size_t field, const ExtentTuple& extents) {
    const InUse in_use(*this);
    const std::size_t count = std::get<0>(extents).size();
    const ExtentColumns columns = ColumnsOrThrow(extents, count);
    IndexBuilder& target = builder();
    RunReleased([&]() -> Status {
      std::vector<Extent> part;
      for (std::size_t i = 0; i < count; ++i) {
        part.push_back(columns.At(i));
        if (part.size() < kExtentsAtOnce && i + 1 < count) continue;
        HEADRACE_RETURN_IF_ERROR(target.AddExtents(field, part));
        part.clear();
      }
      return {};
    });
  }

  void AddInlineValues(std::size_t field, nb::handle values) {
    const InUse in_use(*this);
    const Buffer buffer(values);
    IndexBuilder& target = builder();
    RunReleased([&] { return target.AddInlineValues(field, buffer.bytes()); });
  }

  void AddRagged(std::size_t field, nb::handle values, const InArray<std::uint64_t>& lengths) {
    const InUse in_use(*this);
    const Buffer buffer(values);
    IndexBuilder& target = builder();
    RunReleased([&] {
      return target.AddInlineValues(field, buffer.bytes(), {lengths.data(), lengths.size()});
    });
  }

  void AddChecksums(std::size_t field, const InArray<std::uint64_t>& checksums) {
    const InUse in_use(*this);
    IndexBuilder& target = builder();
    RunReleased([&] { return target.AddChecksums(field, {checksums.data(), checksums.size()}); });
  }

  void AddDecodedSizes(std::size_t field, const InArray<std::uint64_t>& sizes) {
    const InUse in_use(*this);
    IndexBuilder& target = builder();
    RunReleased([&] { return target.AddDecodedSizes(field, {sizes.data(), sizes.size()}); });
  }

  void AddBlocks(const InArray<std::uint64_t>& sample_counts, const ExtentTuple& extents) {
    const InUse in_use(*this);
    const std::size_t count = sample_counts.size();
    const ExtentColumns columns = ColumnsOrThrow(extents, count);
    std::vector<BlockInfo> blocks;
    for (std::size_t i = 0; i < count; ++i) {
      blocks.push_back({SampleId{samples_in_blocks_}, sample_counts.data()[i], columns.At(i), {}});
      samples_in_blocks_ += sample_counts.data()[i];
    }
    IndexBuilder& target = builder();
    RunReleased([&] { return target.AddBlocks(blocks); });
  }

  void SetAttribute(const Text& key, const Text& value) {
    const InUse in_use(*this);
    ThrowIfError(builder().SetAttribute(key.bytes(), value.bytes()));
  }

  [[nodiscard]] std::uint64_t object_count() {
    const InUse in_use(*this);
    return builder().object_count();
  }

  [[nodiscard]] std::uint64_t SampleCount(std::size_t field) {
    const InUse in_use(*this);
    return builder().sample_count(field);
  }

  // Ctrl-C ends it and is raised here.
  void Publish() {
    const InUse in_use(*this);
    const std::unique_ptr<IndexBuilder> last = std::move(builder_);
    if (last == nullptr) ThrowStatus(Ended());
    std::optional<nb::python_error> raised;  // dies under the GIL: declared outside its release
    const auto may_go_on = [&] {
      const GilAcquire acquire;
      if (PyErr_CheckSignals() == 0) return true;
      raised.emplace();
      return false;
    };
    Status status;
    {
      const GilRelease release;
      status = last->Publish(may_go_on);
    }
    if (raised) throw nb::python_error(std::move(*raised));
    ThrowIfError(status);
  }

  void Discard() {
    const InUse in_use(*this);
    builder_.reset();
  }

 private:
  static constexpr std::size_t kExtentsAtOnce = 8192;

  // A call, which other threads may meet while it runs without the GIL.
  class InUse {
   public:
    explicit InUse(PyIndexBuilder& builder) : flag_(builder.in_use_) {
      if (flag_.test_and_set()) {
        ThrowStatus({StatusCode::kFailedPrecondition,
                     "index builder: another thread is using it; use one at a time"});
      }
    }
    ~InUse() { flag_.clear(); }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    std::atomic_flag& flag_;
  };

  static Status Ended() {
    return {StatusCode::kFailedPrecondition,
            "index builder: it was published or discarded; make another one"};
  }

  IndexBuilder& builder() {
    if (builder_ == nullptr) ThrowStatus(Ended());
    return *builder_;
  }

  std::unique_ptr<IndexBuilder> builder_;
  std::uint64_t samples_in_blocks_ = 0;
  std::atomic_flag in_use_;
};

void BindBuilder(nb::module_& module) {
  nb::class_<PyIndexBuilder>(module, "IndexBuilder", "Writes an index in pieces of any size.")
      .def(nb::init<const Text&, const Text&>(), "path"_a, "root"_a)
      .def("add_field", &PyIndexBuilder::AddField, "name"_a, "type"_a, "is_inline"_a = false,
           "checksums"_a = false, "batch_dtype"_a = nb::none(), "decoding"_a = nb::none(),
           "The position of the field. `decoding`: (coding, shuffled, header bytes, decoded sizes)")
      .def("add_objects", &PyIndexBuilder::AddObjects, "names"_a, "sizes"_a, "mtimes_ns"_a)
      .def("add_extents", &PyIndexBuilder::AddExtents, "field"_a, "extents"_a)
      .def("add_inline_values", &PyIndexBuilder::AddInlineValues, "field"_a, "values"_a)
      .def("add_ragged", &PyIndexBuilder::AddRagged, "field"_a, "values"_a, "lengths"_a,
           "Inline values end to end, and the bytes of each.")
      .def("add_checksums", &PyIndexBuilder::AddChecksums, "field"_a, "checksums"_a)
      .def("add_decoded_sizes", &PyIndexBuilder::AddDecodedSizes, "field"_a, "sizes"_a)
      .def("add_blocks", &PyIndexBuilder::AddBlocks, "sample_counts"_a, "extents"_a)
      .def("set_attribute", &PyIndexBuilder::SetAttribute, "key"_a, "value"_a)
      .def_prop_ro("object_count", &PyIndexBuilder::object_count)
      .def("sample_count", &PyIndexBuilder::SampleCount, "field"_a)
      .def("publish", &PyIndexBuilder::Publish, "Checks the whole and writes it; once, last.")
      .def("discard", &PyIndexBuilder::Discard, "Leaves nothing.");
}

void BindContents(nb::module_& module) {
  nb::class_<IndexContents>(module, "IndexContents", "What an index says, column by column.")
      .def(
          "__init__",
          [](IndexContents* self, std::uint64_t sample_count, const Text& root) {
            auto* contents = new (self) IndexContents;
            contents->sample_count = sample_count;
            contents->root = root.bytes();
          },
          "sample_count"_a, "root"_a)
      .def("add_objects", &AddObjects, "names"_a, "sizes"_a, "mtimes_ns"_a)
      .def("add_extent_field", &AddExtentField, "name"_a, "type"_a, "extents"_a,
           "checksums"_a = nb::none(), "batch_dtype"_a = nb::none())
      .def("set_decoding", &SetLastDecoding, "decoding"_a, "decoded_sizes"_a = nb::none(),
           "Of the field that was added last: (coding, shuffled, header bytes, decoded sizes)")
      .def("add_inline_field", &AddInlineField, "name"_a, "type"_a, "values"_a,
           "lengths"_a = nb::none())
      .def("add_blocks", &AddBlocks, "sample_counts"_a, "extents"_a, "checksums"_a)
      .def(
          "set_attribute",
          [](IndexContents& self, const Text& key, const Text& value) {
            self.attributes.emplace_back(key.bytes(), value.bytes());
          },
          "key"_a, "value"_a);
  module.def(
      "write_index",
      [](const IndexContents& contents, const Text& path) {
        const std::string name = path.bytes();
        RunReleased([&] { return WriteIndex(contents, name); });
      },
      "contents"_a, "path"_a, "Writes an index file: temporary, synced, renamed.");
  module.def("build_folder_index", &BuildFolder, "root"_a, "path"_a, "progress"_a = nb::none(),
             "skip"_a = nb::list(), "jobs"_a = 1,
             "Walks a folder of class folders and writes its index.");
  module.def("files_found", &FilesFoundIn, "folder"_a, "names"_a, "jobs"_a = 1,
             "Of each name: the file's size, -1 if there is none, and its time.");
  module.def("tar_members", &TarMembersFrom, "fd"_a, "file_bytes"_a, "at"_a, "members_max"_a,
             "Files of a tar with plain headers: names, offsets, sizes, the next header's place.");
}

}  // namespace

void BindIndexWriting(nb::module_& module) {
  BindContents(module);
  BindBuilder(module);
}

}  // namespace headrace::bindings
