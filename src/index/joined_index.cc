#include "index/joined_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "headrace/index_writer.h"
#include "index/index_reader.h"
#include "index/index_rules.h"

namespace headrace {
namespace {

using internal::Quoted;

constexpr std::string_view kParts = "joined";
constexpr std::string_view kPartField = "joined_part_field";
constexpr std::string_view kPrefixedNames = "joined_prefixed_names";

struct Part {
  JoinedPart named;
  std::shared_ptr<const Index> index;
  std::vector<std::size_t> fields;  // of the part, by position of the joined index's
  std::uint64_t first_sample = 0;
  std::uint64_t first_object = 0;
  std::string below;  // what comes before an object's name: its folder below the root, and '/'
};

// A list of texts as one: each after its length and ':'.
std::string Texts(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) all += std::to_string(text.size()) + ":" + text;
  return all;
}

std::optional<std::vector<std::string>> TextsOf(std::string_view all) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), size);
    if (error != std::errc() || end == all.data() + all.size() || *end != ':') return std::nullopt;
    all.remove_prefix(static_cast<std::size_t>(end - all.data()) + 1);
    if (size > all.size()) return std::nullopt;
    texts.emplace_back(all.substr(0, size));
    all.remove_prefix(size);
  }
  return texts;
}

// Name, path, fingerprint, then the renames, two texts each.
std::string PartText(const Part& part) {
  std::vector<std::string> texts = {part.named.name, part.named.path, part.index->fingerprint()};
  for (const auto& [own, joined] : part.named.renames) {
    texts.push_back(own);
    texts.push_back(joined);
  }
  return Texts(texts);
}

std::string NameIn(const JoinedPart& part, const std::string& field) {
  for (const auto& [own, joined] : part.renames) {
    if (own == field) return joined;
  }
  return field;
}

// The joined names of a part's fields; each once.
Result<std::map<std::string, std::size_t>> FieldsOf(const Part& part) {
  for (const auto& [own, joined] : part.named.renames) {
    const auto named = [&own = own](const FieldInfo& info) { return info.name == own; };
    if (std::ranges::none_of(part.index->fields(), named)) {
      return InvalidArgument("joining '{}': it has no field {} to rename", part.named.name,
                             Quoted(own));
    }
  }
  std::map<std::string, std::size_t> fields;
  for (std::size_t i = 0; i < part.index->fields().size(); ++i) {
    const std::string name = NameIn(part.named, part.index->fields()[i].name);
    if (!fields.emplace(name, i).second) {
      return InvalidArgument("joining '{}': two of its fields would have the name {}",
                             part.named.name, Quoted(name));
    }
  }
  return fields;
}

// What samples of both must share to be one field, but for name and checksums.
std::optional<std::string_view> Difference(const FieldInfo& a, const FieldInfo& b) {
  if (a.kind != b.kind) return "kind";
  if (a.dtype != b.dtype) return "dtype";
  if (a.shape != b.shape || a.is_list != b.is_list) return "shape";
  if (a.is_inline != b.is_inline) return "place: the index, or the files";
  if (a.coding != b.coding || a.is_shuffled != b.is_shuffled || a.header_bytes != b.header_bytes ||
      a.has_decoded_sizes != b.has_decoded_sizes) {
    return "compression";
  }
  if (a.batch_dtype != b.batch_dtype) return "dtype of batches";
  return std::nullopt;
}

std::vector<std::string> FoldersOf(std::string_view root) {
  std::vector<std::string> folders;
  while (true) {
    const std::size_t end = root.find('/');
    folders.emplace_back(root.substr(0, end));
    if (end == std::string_view::npos) return folders;
    root.remove_prefix(end + 1);
  }
}

// The deepest folder above all roots; "s3://bucket" has four parts: "s3:", "" and "bucket".
Result<std::string> CommonRoot(std::span<const Part> parts) {
  std::vector<std::string> common = FoldersOf(parts.front().index->root());
  for (const Part& part : parts) {
    const std::vector<std::string> folders = FoldersOf(part.index->root());
    const auto [end, unused] = std::ranges::mismatch(common, folders);
    common.erase(end, common.end());
  }
  const bool is_local = parts.front().index->root().starts_with('/');
  if (common.empty() || (!is_local && common.size() < 3)) {
    return InvalidArgument(
        "joining '{}' in {} and '{}' in {}: they lie in different stores; copy one beside the "
        "other",
        parts.front().named.name, Quoted(parts.front().index->root()), parts.back().named.name,
        Quoted(parts.back().index->root()));
  }
  if (common.size() == 1) return std::string("/.");  // of local folders, only "/" is above all
  std::string root = common.front();
  for (const std::string& folder : std::span(common).subspan(1)) root += "/" + folder;
  return root;
}

// Large: as Index.
class JoinedIndex final : public Index {
 public:
  JoinedIndex(std::vector<Part> parts, std::vector<FieldInfo> fields, std::string root,
              const JoinOptions& options)
      : parts_(std::move(parts)),
        fields_(std::move(fields)),
        root_(std::move(root)),
        has_part_field_(!options.part_field.empty()),
        prefixed_names_(options.prefixed_names) {
    Hasher128 fingerprint;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      numbers_.push_back(static_cast<std::int64_t>(i));
      part.first_sample = samples_;
      part.first_object = objects_;
      samples_ += part.index->sample_count();
      objects_ += part.index->object_count();
      fingerprint.AddText(part.index->fingerprint());
      for (const std::size_t field : part.fields) fingerprint.AddNumber(field);
    }
    for (const FieldInfo& field : fields_) fingerprint.AddText(field.name);
    fingerprint.AddNumber(has_part_field_ ? 1 : 0);
    fingerprint_ = HexDigest(fingerprint.Digest());
  }

  [[nodiscard]] std::uint64_t sample_count() const override { return samples_; }
  [[nodiscard]] std::span<const FieldInfo> fields() const override { return fields_; }
  [[nodiscard]] std::uint64_t object_count() const override { return objects_; }
  [[nodiscard]] std::uint64_t block_count() const override { return 0; }
  [[nodiscard]] const std::string& root() const override { return root_; }
  [[nodiscard]] const std::string& fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::span<const Attribute> attributes() const override { return {}; }

  [[nodiscard]] std::string Content() const override {
    Hasher128 content;
    for (const Part& part : parts_) {
      content.AddText(part.index->Content());
      for (const std::size_t field : part.fields) content.AddNumber(field);
    }
    for (const FieldInfo& field : fields_) content.AddText(field.name);
    content.AddNumber(has_part_field_ ? 1 : 0);
    return HexDigest(content.Digest());
  }

  [[nodiscard]] Status CheckIntact() const override {
    for (const Part& part : parts_) HEADRACE_RETURN_IF_ERROR(part.index->CheckIntact());
    return Status();
  }

  [[nodiscard]] std::uint64_t file_bytes() const override {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.index->file_bytes();
    return bytes;
  }

  [[nodiscard]] Result<ObjectInfo> object(ObjectId id) const override {
    if (Raw(id) >= objects_) {
      return OutOfRange("object {}: the joined index has {} objects", Raw(id), objects_);
    }
    const Part& part = PartOfObject(id);
    HEADRACE_ASSIGN_OR_RETURN(ObjectInfo object,
                              part.index->object(ObjectId{Raw(id) - part.first_object}));
    if (part.below.empty()) return object;
    const MutexLock lock(names_mutex_);
    const auto [name, is_new] = names_.try_emplace(Raw(id));
    if (is_new) {
      const std::size_t path = prefixed_names_ ? object.name.find('/') + 1 : 0;
      name->second = std::string(object.name).insert(path, part.below);
    }
    object.name = name->second;
    return object;
  }

  [[nodiscard]] std::uint64_t object_bytes(ObjectId id) const override {
    const Part& part = PartOfObject(id);
    return part.index->object_bytes(ObjectId{Raw(id) - part.first_object});
  }

  [[nodiscard]] Result<BlockInfo> block(std::uint64_t position) const override {
    return OutOfRange("block {}: the joined index has none", position);
  }

  [[nodiscard]] Result<Extent> extent(std::size_t field, SampleId id) const override {
    HEADRACE_RETURN_IF_ERROR(Check(field, id));
    if (IsPartField(field)) {
      return InvalidArgument("field {} has no extents: ask for its inline values",
                             Quoted(fields_[field].name));
    }
    const Part& part = PartOf(id);
    HEADRACE_ASSIGN_OR_RETURN(Extent extent, part.index->extent(part.fields[field], Own(part, id)));
    extent.object = ObjectId{Raw(extent.object) + part.first_object};
    return extent;
  }

  [[nodiscard]] Result<std::span<const std::byte>> inline_value(std::size_t field,
                                                                SampleId id) const override {
    HEADRACE_RETURN_IF_ERROR(Check(field, id));
    const Part& part = PartOf(id);
    if (IsPartField(field)) {
      return std::as_bytes(
          std::span(numbers_).subspan(static_cast<std::size_t>(&part - parts_.data()), 1));
    }
    return part.index->inline_value(part.fields[field], Own(part, id));
  }

  [[nodiscard]] Result<std::uint64_t> decoded_bytes(std::size_t field, SampleId id) const override {
    HEADRACE_RETURN_IF_ERROR(Check(field, id));
    if (IsPartField(field)) return Index::decoded_bytes(field, id);
    const Part& part = PartOf(id);
    return part.index->decoded_bytes(part.fields[field], Own(part, id));
  }

  [[nodiscard]] std::optional<std::uint64_t> checksum(std::size_t field,
                                                      SampleId id) const override {
    HEADRACE_CHECK(field < fields_.size() && Raw(id) < samples_);
    if (!fields_[field].has_checksums) return std::nullopt;
    const Part& part = PartOf(id);
    return part.index->checksum(part.fields[field], Own(part, id));
  }

  void Prefetch(std::size_t field, SampleId id) const override {
    if (field >= fields_.size() || Raw(id) >= samples_ || IsPartField(field)) return;
    const Part& part = PartOf(id);
    part.index->Prefetch(part.fields[field], Own(part, id));
  }

  [[nodiscard]] Status VerifyAll() const override {
    for (const Part& part : parts_) {
      if (const Status status = part.index->VerifyAll(); !status.ok()) {
        return status.WithContext("'" + part.named.name + "'");
      }
    }
    return Status();
  }

 private:
  [[nodiscard]] Status Check(std::size_t field, SampleId id) const {
    if (field >= fields_.size()) {
      return OutOfRange("field {}: the joined index has {}", field, fields_.size());
    }
    if (Raw(id) >= samples_) {
      return OutOfRange("sample {}: the joined index has {}", Raw(id), samples_);
    }
    return Status();
  }

  [[nodiscard]] bool IsPartField(std::size_t field) const {
    return has_part_field_ && field + 1 == fields_.size();
  }

  // The last part that begins at or before it; later parts may be empty.
  [[nodiscard]] const Part& PartOf(SampleId id) const {
    return *std::prev(std::ranges::upper_bound(parts_, Raw(id), {}, &Part::first_sample));
  }
  [[nodiscard]] const Part& PartOfObject(ObjectId id) const {
    HEADRACE_CHECK(Raw(id) < objects_);
    return *std::prev(std::ranges::upper_bound(parts_, Raw(id), {}, &Part::first_object));
  }
  [[nodiscard]] static SampleId Own(const Part& part, SampleId id) {
    return SampleId{Raw(id) - part.first_sample};
  }

  std::vector<Part> parts_;
  const std::vector<FieldInfo> fields_;
  const std::string root_;
  const bool has_part_field_;
  const bool prefixed_names_;
  std::vector<std::int64_t> numbers_;  // 0, 1, 2, ...: values of the part field
  std::uint64_t samples_ = 0;
  std::uint64_t objects_ = 0;
  std::string fingerprint_;
  mutable Mutex names_mutex_;
  // Of objects that were asked for; entries stay where they are.
  mutable std::unordered_map<std::uint64_t, std::string> names_ HEADRACE_GUARDED_BY(names_mutex_);
};

// Sets the parts' fields; gives those of the joined index.
Result<std::vector<FieldInfo>> JoinFields(std::vector<Part>& parts) {
  std::vector<std::map<std::string, std::size_t>> of_parts;
  for (const Part& part : parts) {
    HEADRACE_ASSIGN_OR_RETURN(auto fields, FieldsOf(part));
    of_parts.push_back(std::move(fields));
  }
  std::vector<FieldInfo> joined;
  for (const FieldInfo& own : parts.front().index->fields()) {
    FieldInfo info = own;
    info.name = NameIn(parts.front().named, own.name);
    const auto has = [&](const auto& fields) { return fields.contains(info.name); };
    if (!std::ranges::all_of(of_parts, has)) continue;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const FieldInfo& other = parts[i].index->fields()[of_parts[i].at(info.name)];
      if (const auto difference = Difference(info, other)) {
        return InvalidArgument(
            "joining '{}' and '{}': their fields {} differ in {}; rename one of them, or write "
            "both in one format (headrace pack)",
            parts.front().named.name, parts[i].named.name, Quoted(info.name), *difference);
      }
      info.has_checksums = info.has_checksums && other.has_checksums;
      parts[i].fields.push_back(of_parts[i].at(info.name));
    }
    joined.push_back(std::move(info));
  }
  if (joined.empty()) {
    return InvalidArgument(
        "joining '{}' and {} more: no field has the same name in all of them; rename fields",
        parts.front().named.name, parts.size() - 1);
  }
  return joined;
}

// `options`: without the parts.
Result<std::shared_ptr<const Index>> Join(std::vector<Part> parts, const JoinOptions& options) {
  const std::string& part_field = options.part_field;
  HEADRACE_ASSIGN_OR_RETURN(std::vector<FieldInfo> fields, JoinFields(parts));
  HEADRACE_ASSIGN_OR_RETURN(std::string root, CommonRoot(parts));
  const std::size_t common = root == "/." ? 0 : root.size();
  for (Part& part : parts) {
    part.below = part.index->root().substr(common);
    if (part.below.starts_with('/')) part.below.erase(0, 1);
    if (!part.below.empty()) part.below += '/';
  }
  if (!part_field.empty()) {
    if (std::ranges::find(fields, part_field, &FieldInfo::name) != fields.end()) {
      return InvalidArgument(
          "joining: the parts have a field {} themselves; give the part's number "
          "another name",
          Quoted(part_field));
    }
    fields.push_back(
        {.name = part_field, .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true});
  }
  return std::shared_ptr<const Index>(std::make_shared<const JoinedIndex>(
      std::move(parts), std::move(fields), std::move(root), options));
}

Result<Part> OpenPart(JoinedPart named) {
  Result<std::shared_ptr<const Index>> index = internal::OpenIndexFile(named.path);
  if (!index.ok()) return index.status().WithContext("'" + named.name + "'");
  if (internal::IsJoined(*index.value())) {
    return InvalidArgument("joining '{}': it is a mixture itself; name its sources", named.name);
  }
  return Part{.named = std::move(named), .index = std::move(index).value()};
}

Status Damaged(const std::string& path) {
  return DataLoss("opening index {}: its list of parts is damaged; make the mixture again",
                  Quoted(path));
}

}  // namespace

Status WriteJoinedIndex(const JoinOptions& options, const std::string& path) {
  if (options.parts.empty()) return InvalidArgument("joining: no part; give at least one");
  std::vector<Part> parts;
  std::vector<std::string> texts;
  for (const JoinedPart& named : options.parts) {
    HEADRACE_ASSIGN_OR_RETURN(Part part, OpenPart(named));
    texts.push_back(PartText(part));
    parts.push_back(std::move(part));
  }
  HEADRACE_RETURN_IF_ERROR(Join(std::move(parts), options).status());
  IndexContents contents;
  contents.root = ".";
  contents.fields = {{.info = {.name = std::string(kParts)}}};  // An index has a field.
  contents.attributes = {{std::string(kParts), Texts(texts)},
                         {std::string(kPartField), options.part_field},
                         {std::string(kPrefixedNames), options.prefixed_names ? "yes" : ""}};
  return WriteIndex(contents, path);
}

namespace internal {

bool IsJoined(const Index& file) { return !FindAttribute(file, kParts).empty(); }

Result<std::shared_ptr<const Index>> OpenJoinedIndex(const Index& file, const std::string& path) {
  const auto texts = TextsOf(FindAttribute(file, kParts));
  if (!texts.has_value()) return Damaged(path);
  std::vector<Part> parts;
  for (const std::string& text : *texts) {
    auto words = TextsOf(text);
    if (!words.has_value() || words->size() < 3 || words->size() % 2 == 0) return Damaged(path);
    JoinedPart named{.name = std::move((*words)[0]), .path = std::move((*words)[1])};
    for (std::size_t i = 3; i < words->size(); i += 2) {
      named.renames.emplace_back(std::move((*words)[i]), std::move((*words)[i + 1]));
    }
    HEADRACE_ASSIGN_OR_RETURN(Part part, OpenPart(std::move(named)));
    if (part.index->fingerprint() != (*words)[2]) {
      return FailedPrecondition(
          "opening index {}: '{}' has changed since it was joined; make the mixture again",
          Quoted(path), part.named.name);
    }
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return Damaged(path);
  return Join(std::move(parts), {.part_field = std::string(FindAttribute(file, kPartField)),
                                 .prefixed_names = !FindAttribute(file, kPrefixedNames).empty()});
}

}  // namespace internal
}  // namespace headrace
