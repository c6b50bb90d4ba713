#include "headrace/folder_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/folder/folder_threads.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class FolderTest : public testing::Test {
 protected:
  // Files whose contents are their names.
  void Make(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      fs::create_directories(fs::path(folder_ / file).parent_path());
      internal::WriteFile(folder_ / file, std::as_bytes(std::span(file)));
    }
  }
  void Link(const std::string& to, const std::string& at) { fs::create_symlink(to, folder_ / at); }

  Result<IndexContents> Build() { return BuildFolderIndex(folder_.path(), {}); }

  // "label name" of every sample in order.
  std::vector<std::string> Samples() { return Skipping({}); }

  std::vector<std::string> Skipping(const std::vector<std::string>& skip) {
    const auto contents = BuildFolderIndex(folder_.path(), {}, skip);
    EXPECT_EQ(contents.status().ToString(), "OK");
    std::vector<std::string> samples;
    if (!contents.ok()) return samples;
    const IndexContents& c = contents.value();
    report_ = AttributeOf(c, "report");
    EXPECT_EQ(c.fields[1].inline_values.size(), 8 * c.sample_count);
    for (std::size_t i = 0; i < c.sample_count; ++i) {
      const auto label = internal::Load<std::int64_t>(c.fields[1].inline_values.data() + 8 * i);
      const Extent& extent = c.fields[0].extents[i];
      EXPECT_EQ(extent, internal::MakeExtent(i, 0, c.objects[i].size));
      samples.push_back(std::to_string(label) + " " + c.objects[i].name);
    }
    return samples;
  }

  static std::string AttributeOf(const IndexContents& contents, std::string_view key) {
    for (const auto& [name, value] : contents.attributes) {
      if (name == key) return value;
    }
    return "none";
  }

  std::string Report() { return AttributeOf(Build().value(), "report"); }

  // An index of the folder as it is now.
  std::shared_ptr<const Index> Indexed(const std::vector<std::string>& skip = {}) {
    file_ = internal::FileOf(BuildFolderIndex(folder_.path(), {}, skip).value());
    return internal::OpenIndexInMemory(file_, "/x/i", nullptr).value();
  }

  // Sets the folder's mtime to one second later, as a change would, however coarse the clock of the
  // file system is.
  void Touch(const std::string& path) {
    fs::last_write_time(folder_ / path,
                        fs::last_write_time(folder_ / path) + std::chrono::seconds(1));
  }

  void ExpectError(StatusCode code, const std::vector<std::string>& parts) {
    const Status status = Build().status();
    EXPECT_EQ(status.code(), code) << status.ToString();
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + folder_.path() + "'"));
  }

  internal::TestFolder folder_;
  std::vector<std::byte> file_;
  std::string report_;
};

TEST_F(FolderTest, ClassesAreFoldersInOrderOfName) {
  Make({"dog/1.jpg", "cat/2.jpg", "Zebra/3.jpg", ".hidden/4.jpg", "beside.jpg"});
  EXPECT_THAT(Samples(),
              ElementsAre("0 .hidden/4.jpg", "1 Zebra/3.jpg", "2 cat/2.jpg", "3 dog/1.jpg"));
  const auto contents = Build().value();
  EXPECT_THAT(contents.attributes,
              testing::Contains(testing::Pair("classes", R"([".hidden","Zebra","cat","dog"])")));
  EXPECT_THAT(contents.attributes, testing::Contains(testing::Pair("format", "folder")));
}

// sorted(os.walk()): by the whole path of the folder, '-' before '/', then by file name. So a
// folder's files come before those of its subfolders.
TEST_F(FolderTest, FilesAreOrderedByPathOfTheirFolderAndThenByName) {
  Make({"c/b.jpg", "c/a/z.jpg", "c/a-b/y.jpg", "c/a/b/x.jpg", "c/B.jpg", "c/a.jpg", "c/10.jpg",
        "c/9.jpg"});
  EXPECT_THAT(Samples(), ElementsAre("0 c/10.jpg", "0 c/9.jpg", "0 c/B.jpg", "0 c/a.jpg",
                                     "0 c/b.jpg", "0 c/a/z.jpg", "0 c/a-b/y.jpg", "0 c/a/b/x.jpg"));
}

TEST_F(FolderTest, ImagesAreToldByExtensionInAnyCase) {
  Make({"c/1.jpg", "c/2.JPEG", "c/3.PnG", "c/4.ppm", "c/5.bmp", "c/6.pgm", "c/7.tif", "c/8.tiff",
        "c/9.webp", "c/.jpg", "c/.x.jpg", "c/a.txt", "c/b.jpg.txt", "c/jpg", "c/c.gif"});
  EXPECT_THAT(Samples(), ElementsAre("0 c/.jpg", "0 c/.x.jpg", "0 c/1.jpg", "0 c/2.JPEG",
                                     "0 c/3.PnG", "0 c/4.ppm", "0 c/5.bmp", "0 c/6.pgm",
                                     "0 c/7.tif", "0 c/8.tiff", "0 c/9.webp"));
}

TEST_F(FolderTest, LinksToFilesAndFoldersAreFollowed) {
  Make({"a/1.jpg", "a/in/2.jpg"});
  Link("a", "b");
  fs::create_directory(folder_ / "c");
  Link("../a/in", "c/in");
  Link("../a/1.jpg", "c/other.jpg");
  EXPECT_THAT(Samples(), ElementsAre("0 a/1.jpg", "0 a/in/2.jpg", "1 b/1.jpg", "1 b/in/2.jpg",
                                     "2 c/other.jpg", "2 c/in/2.jpg"));
}

TEST_F(FolderTest, SizesAndTimesAreTheFiles) {
  Make({"c/a.jpg", "c/b.jpg"});
  const std::array<timespec, 2> times = {
      {{.tv_sec = 5, .tv_nsec = 6}, {.tv_sec = 1234567890, .tv_nsec = 123456789}}};
  ASSERT_EQ(truncate((folder_ / "c/b.jpg").c_str(), 5'000'000'000), 0);
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ / "c/b.jpg").c_str(), times.data(), 0), 0);
  const auto contents = Build().value();
  EXPECT_EQ(contents.objects[0].size, 7u);
  EXPECT_EQ(contents.objects[1].size, 5'000'000'000u);
  EXPECT_EQ(contents.objects[1].mtime_ns, 1234567890123456789);
}

TEST_F(FolderTest, NamesThatAreNotUtf8KeepTheirBytes) {
  Make({"\xff/\xfe.jpg", "\xc3\xa9/1.jpg"});
  if (!fs::exists(folder_ / "\xff/\xfe.jpg")) GTEST_SKIP() << "the file system wants UTF-8";
  EXPECT_THAT(Samples(), ElementsAre("0 \xc3\xa9/1.jpg", "1 \xff/\xfe.jpg"));
  EXPECT_THAT(Build().value().attributes,
              testing::Contains(testing::Pair("classes", "[\"\xc3\xa9\",\"\\udcff\"]")));
  EXPECT_TRUE(FolderIndexIsCurrent(*Indexed()));
}

TEST_F(FolderTest, AWorkingFolderThatIsGoneIsNamed) {
  const fs::path before = fs::current_path();
  {
    const internal::TestFolder gone;
    fs::current_path(gone.path());
  }
  const Status status = BuildFolderIndex("data", {}).status();
  fs::current_path(before);
  EXPECT_THAT(status.ToString(),
              HasSubstr("finding the working folder: No such file or directory; change to a folder "
                        "that exists"));
}

TEST_F(FolderTest, TheRootIsAbsoluteWithoutSlashAtItsEnd) {
  Make({"c/a.jpg"});
  EXPECT_EQ(BuildFolderIndex(folder_.path() + "//", {}).value().root, folder_.path());
}

TEST_F(FolderTest, IndexOfTheFolderIsValid) {
  Make({"a/1.jpg", "b/in/2.jpg"});
  const auto index = Indexed();
  EXPECT_EQ(index->VerifyAll().ToString(), "OK");
  EXPECT_EQ(index->object(ObjectId{1}).value().name, "b/in/2.jpg");
  EXPECT_EQ(index->root(), folder_.path());
}

TEST_F(FolderTest, NoSuchFolderIsNotFound) {
  const Status status = BuildFolderIndex(folder_ / "no", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ / "no"));
}

TEST_F(FolderTest, AFileInsteadOfAFolderIsInvalid) {
  Make({"a.jpg"});
  const Status status = BuildFolderIndex(folder_ / "a.jpg", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is a file: name the folder"));
}

TEST_F(FolderTest, NoClassFoldersIsInvalid) {
  ExpectError(StatusCode::kInvalidArgument, {"no class folders: put the images of each class"});
  Make({"1.jpg"});
  ExpectError(StatusCode::kInvalidArgument, {"no class folders but 1 image of its own: put"});
  Make({"2.jpg"});
  ExpectError(StatusCode::kInvalidArgument, {"no class folders but 2 images of its own: put"});
}

TEST_F(FolderTest, AClassFolderWithoutImagesIsInvalidAndAllAreNamed) {
  Make({"a/1.jpg", "b/notes.txt", "c/in/deep.txt"});
  ExpectError(StatusCode::kInvalidArgument,
              {"without an image", "2: 'b', 'c'", "leave these out with skip=['/b', '/c']"});
  EXPECT_THAT(std::string(Build().status().message()), Not(HasSubstr("remove")));
  EXPECT_THAT(Skipping({"/b", "/c"}), ElementsAre("0 a/1.jpg"));
}

TEST_F(FolderTest, WhatCanNotBeDecodedIsASampleAndIsReported) {
  Make({"a/ok.jpg", "a/1.ppm", "a/2.PpM", "a/3.bmp", "a/.4.png", "b/.in/5.jpg"});
  internal::WriteFile(folder_ / "a/empty.jpg", {});
  internal::WriteFile(folder_ / "a/empty.webp", {});
  Link("nowhere", "a/gone.jpg");
  Link("self.jpg", "a/self.jpg");
  ASSERT_EQ(mkfifo((folder_ / "a/pipe.jpg").c_str(), 0600), 0);
  EXPECT_THAT(Samples(),
              ElementsAre("0 a/.4.png", "0 a/1.ppm", "0 a/2.PpM", "0 a/3.bmp", "0 a/empty.jpg",
                          "0 a/empty.webp", "0 a/gone.jpg", "0 a/ok.jpg", "0 a/pipe.jpg",
                          "0 a/self.jpg", "1 b/.in/5.jpg"));
  EXPECT_EQ(Report(),
            R"([[".bmp",1,["a/3.bmp"]],[".ppm",2,["a/1.ppm","a/2.PpM"]],)"
            R"(["broken_link",2,["a/gone.jpg","a/self.jpg"]],)"
            R"(["empty",2,["a/empty.jpg","a/empty.webp"]],["hidden",2,["a/.4.png","b/.in/5.jpg"]],)"
            R"(["special",1,["a/pipe.jpg"]]])");
  for (const IndexContents::Object& object : Build().value().objects) {
    if (object.name.ends_with("gone.jpg") || object.name.ends_with("pipe.jpg")) {
      EXPECT_EQ(object.size, 0u);
      EXPECT_EQ(object.mtime_ns, 0);
    }
  }
  EXPECT_EQ(Indexed()->VerifyAll().ToString(), "OK");
}

TEST_F(FolderTest, WebpAndTiffAreDecodedAndNotReported) {
  Make({"a/1.webp", "a/2.TIF", "a/3.tiff", "a/4.WEBP"});
#ifdef HEADRACE_WITHOUT_TIFF
  EXPECT_EQ(Report(), R"([[".tif",1,["a/2.TIF"]],[".tiff",1,["a/3.tiff"]]])");
  return;
#endif
  EXPECT_EQ(Report(), "[]");
  EXPECT_THAT(Skipping({":undecodable"}),
              ElementsAre("0 a/1.webp", "0 a/2.TIF", "0 a/3.tiff", "0 a/4.WEBP"));
}

TEST_F(FolderTest, OnlyTheFirstNamesOfAKindAreReported) {
  for (int i = 0; i < 7; ++i) Make({"a/" + std::to_string(i) + ".pgm"});
  EXPECT_EQ(Report(), R"([[".pgm",7,["a/0.pgm","a/1.pgm","a/2.pgm","a/3.pgm","a/4.pgm"]]])");
}

TEST_F(FolderTest, WhatIsSkippedIsNotThereAndCounted) {
  Make({"a/ok.jpg", "a/1.ppm", "a/in/2.jpg", "a/.3.jpg", "b/4.jpg", "src/5.jpg", "a/notes.txt"});
  internal::WriteFile(folder_ / "a/empty.jpg", {});
  EXPECT_THAT(Skipping({":undecodable", "in", "/src", ":hidden", "*.txt"}),
              ElementsAre("0 a/ok.jpg", "1 b/4.jpg"));
  EXPECT_EQ(report_, R"([["skipped",5,["src","a/.3.jpg","a/1.ppm","a/empty.jpg","a/in"]]])");
  EXPECT_THAT(Skipping({"*.ppm"}), ElementsAre("0 a/.3.jpg", "0 a/empty.jpg", "0 a/ok.jpg",
                                               "0 a/in/2.jpg", "1 b/4.jpg", "2 src/5.jpg"));
}

TEST_F(FolderTest, SkippingEveryClassIsInvalid) {
  Make({"a/1.jpg"});
  const Status status = BuildFolderIndex(folder_.path(), {}, {"a"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("but those that skip= leaves out, 1: 'a'"));
  EXPECT_EQ(BuildFolderIndex(folder_.path(), {}, {":no"}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(FolderTest, ALinkToAFolderAroundItIsNotFollowedAndReported) {
  Make({"a/in/1.jpg"});
  Link("..", "a/in/up");
  EXPECT_THAT(Samples(), ElementsAre("0 a/in/1.jpg"));
  EXPECT_EQ(Report(), R"([["loop",1,["a/in/up"]]])");
  EXPECT_TRUE(FolderIndexIsCurrent(*Indexed()));
  Link(folder_.path(), "b");
  ExpectError(StatusCode::kInvalidArgument,
              {"1: 'b'; links to a folder that contains them are not followed, 2: 'a/in/up', 'b'"});
}

TEST_F(FolderTest, FoldersThatCanNotBeReadAreNamed) {
  Make({"a/1.jpg", "a/closed/2.jpg"});
  fs::permissions(folder_.path(), fs::perms::all);
  fs::permissions(folder_ / "a/closed", fs::perms::none);
  // Root can read everything.
  constexpr uid_t kNobody = 65534;
  const uid_t self = geteuid();
  if (self == 0) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const Status status = Build().status();
  if (self == 0) {
    ASSERT_EQ(seteuid(self), 0);
  }
  fs::permissions(folder_ / "a/closed", fs::perms::all);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("folder 'a/closed' cannot be read: Permission denied for user " +
                        std::to_string(self == 0 ? kNobody : self) +
                        ": find the file or folder that refuses with `namei -l PATH`, and chmod "
                        "it; leave it out with skip=['/a/closed'] if you do not need it"));
}

TEST_F(FolderTest, ThreadsGiveWhatOneGives) {
  for (int i = 0; i < 1500; ++i) {
    Make({"c" + std::to_string(i % 2) + "/" + std::to_string(i) + (i % 7 == 0 ? ".webp" : ".jpg")});
  }
  Link("nothing", "c0/broken.jpg");
  TestExecutor executor(3);
  const std::vector<std::string> skip = {"*4.jpg"};
  const IndexContents one = BuildFolderIndex(folder_.path(), {}, skip).value();
  const IndexContents several = BuildFolderIndex(folder_.path(), {}, skip, &executor).value();
  EXPECT_EQ(internal::FileOf(one), internal::FileOf(several));
}

TEST_F(FolderTest, ProgressIsToldAndCanCancel) {
  std::vector<std::string> files;
  files.reserve(2100);
  for (int i = 0; i < 2100; ++i) files.push_back("a/" + std::to_string(i) + ".jpg");
  Make(files);
  std::vector<std::uint64_t> told;
  EXPECT_TRUE(BuildFolderIndex(folder_.path(), [&](std::uint64_t found) {
                told.push_back(found);
                return true;
              }).ok());
  EXPECT_THAT(told, ElementsAre(1024, 2048, 2100));
  for (const std::uint64_t last : told) {
    const Status status =
        BuildFolderIndex(folder_.path(), [&](std::uint64_t n) { return n < last; }).status();
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cancelled after " + std::to_string(last) + " files"));
  }
}

TEST_F(FolderTest, TheIndexNotesPatternsThatMatchNothing) {
  Make({"a/1.jpg", "a/notes.txt", "b/2.jpg", "src/x.jpg"});
  const std::vector<std::string> skip = {"*.txt", "src", "/c", "b/3.jpg", ":empty"};
  const IndexContents contents = BuildFolderIndex(folder_.path(), {}, skip).value();
  EXPECT_EQ(AttributeOf(contents, "skip_unmatched"), R"(["/c","b/3.jpg"])");
}

// Files beside the class folders are not indexed, whatever is skipped.
TEST_F(FolderTest, APatternThatMatchesOnlyFilesBesideTheClassFoldersLeavesOutNothing) {
  Make({"a/1.jpg", "b/2.jpg", "notes.txt", "c/3.jpg"});
  std::filesystem::create_directory_symlink(folder_.path() + "/c", folder_.path() + "/linked");
  const IndexContents contents =
      BuildFolderIndex(folder_.path(), {}, {"notes.txt", "linked", "b", "b/2.jpg"}).value();
  EXPECT_EQ(AttributeOf(contents, "skip_unmatched"), R"(["notes.txt"])");
}

TEST_F(FolderTest, AnIndexIsCurrentUntilAFolderChanges) {
  Make({"a/1.jpg", "a/in/2.jpg", "b/3.jpg"});
  const auto index = Indexed();
  EXPECT_TRUE(FolderIndexIsCurrent(*index));
  Touch("a/in");
  EXPECT_FALSE(FolderIndexIsCurrent(*index));
  EXPECT_TRUE(FolderIndexIsCurrent(*Indexed()));
}

TEST_F(FolderTest, AnIndexIsNotCurrentIfAFolderIsGone) {
  Make({"a/1.jpg", "a/in/2.jpg", "b/3.jpg"});
  const auto index = Indexed();
  fs::remove_all(folder_ / "a/in");
  EXPECT_FALSE(FolderIndexIsCurrent(*index));
  fs::remove_all(folder_.path());
  EXPECT_FALSE(FolderIndexIsCurrent(*index));
}

TEST_F(FolderTest, OfTheRootOnlyClassFoldersMatter) {
  Make({"a/1.jpg", "b/2.jpg"});
  const auto index = Indexed();
  Make({"notes.txt"});
  Touch("");
  EXPECT_TRUE(FolderIndexIsCurrent(*index));
  Make({"c/3.jpg"});
  Touch("");
  EXPECT_FALSE(FolderIndexIsCurrent(*index));
}

TEST_F(FolderTest, SkippedFoldersMayComeAndGo) {
  Make({"a/1.jpg", "src/2.jpg"});
  const auto index = Indexed({"src", "*.tmp"});
  fs::remove_all(folder_ / "src");
  Touch("");
  EXPECT_TRUE(FolderIndexIsCurrent(*index));
  Make({"src/3.jpg", "b.tmp/4.jpg"});
  Touch("");
  EXPECT_TRUE(FolderIndexIsCurrent(*index));
  Make({"c/5.jpg"});
  Touch("");
  EXPECT_FALSE(FolderIndexIsCurrent(*index));
}

TEST(FolderIndexTest, AnIndexWithoutFoldersIsNotCurrent) {
  for (const char* folders : {"", "[]", "[[\"\""}) {
    IndexContents contents = internal::SmallContents();
    contents.attributes = {{"folders", folders}, {"skip", "[]"}};
    const std::vector<std::byte> file = internal::FileOf(contents);
    EXPECT_FALSE(FolderIndexIsCurrent(*internal::OpenIndexInMemory(file, "/x/i", nullptr).value()));
  }
}

}  // namespace
}  // namespace headrace
