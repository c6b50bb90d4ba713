// Reads a folder of class folders, batch by batch, in a shuffled order: the encoded bytes of each
// image and its class. `read_batches FOLDER`; without one it makes a small folder of its own.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "headrace/batch.h"
#include "headrace/folder_index.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "headrace/loader.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"

namespace {

namespace fs = std::filesystem;

// Forty files in two classes. What is not decoded need not be an image.
void MakeFolder(const fs::path& folder) {
  for (int i = 0; i < 40; ++i) {
    const fs::path place = folder / (i % 2 == 0 ? "cat" : "dog");
    fs::create_directories(place);
    std::ofstream(place / (std::to_string(i) + ".jpg")) << std::string(1000 + 10 * i, 'x');
  }
}

headrace::Status ReadEpoch(const fs::path& folder, const fs::path& index_path) {
  HEADRACE_ASSIGN_OR_RETURN(const headrace::IndexContents contents,
                            headrace::BuildFolderIndex(folder.string(), nullptr));
  HEADRACE_RETURN_IF_ERROR(headrace::WriteIndex(contents, index_path.string()));
  HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const headrace::Index> index,
                            headrace::Index::Open(index_path.string()));

  headrace::LoaderOptions options;
  options.job.batch_size = 16;
  options.job.seed = 7;
  options.job.epochs = 1;
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<headrace::Loader> loader,
                            headrace::Loader::Open(index, options));
  HEADRACE_RETURN_IF_ERROR(loader->Start({.epoch = 0, .step = 0}));
  for (;;) {
    HEADRACE_ASSIGN_OR_RETURN(const headrace::TakenBatch taken, loader->Next(-1));
    if (taken.ended) return headrace::Status();
    std::uint64_t bytes = 0;
    std::int64_t label_sum = 0;
    for (std::size_t slot = 0; slot < taken.batch->samples.size(); ++slot) {
      bytes += taken.batch->row(loader->facts().schema, 0, slot).size();
      std::int64_t label = 0;
      std::memcpy(&label, taken.batch->row(loader->facts().schema, 1, slot).data(), sizeof(label));
      label_sum += label;
    }
    std::cout << "step " << taken.batch->step << ": " << taken.batch->samples.size() << " samples, "
              << bytes << " bytes, " << label_sum << " of class 1\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path scratch =
      fs::temp_directory_path() / ("headrace-example-" + std::to_string(getpid()));
  fs::create_directories(scratch);
  const fs::path folder = argc > 1 ? fs::path(argv[1]) : scratch / "images";
  if (argc == 1) MakeFolder(folder);
  const headrace::Status status = ReadEpoch(folder, scratch / "index.hri");
  fs::remove_all(scratch);
  if (!status.ok()) std::cerr << status.ToString() << '\n';
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
