#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "index/index_writer.h"

namespace headrace {

// What BuildFolderIndex tells while it walks; called now and then, and once at the end, on the
// calling thread; may be empty. Returning false cancels.
using FolderProgress = std::function<bool(std::uint64_t files_found)>;

// Indexes a folder of class folders, as torchvision's ImageFolder reads it: a class for each folder
// directly below `root`, in order of name (bytes); below it every image file, links followed,
// ordered by folder path and then file name; extensions .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff
// .webp in any case. So ids and labels equal ImageFolder's. Only names and statuses are looked at:
// no file is opened.
//
// A file that cannot be decoded (zero bytes, a broken link, a pipe, an unsupported format) is a
// sample, too, and fails when it is read. A link to a folder that contains it is not followed.
//
// `skip` leaves out files and folders, as if they were not there. Entries are names, paths below
// the root with '*' and '?', or kinds such as ":undecodable" (docs/data.md). Ids and labels count
// the remaining files.
//
// Fields: "image" (kImage, extents: whole files), "label" (int64 scalar, inline: number of the
// class). Attributes: "format" = "folder"; "classes" = JSON list of class names; "folders" = JSON
// list of [path below root, mtime_ns] of every folder walked, "" for root itself, by which a later
// open sees that files came or went; "skip" = JSON list, as given; "report" = JSON list of [kind,
// count, [first names]] of files that cannot be decoded, are hidden or were left out. Names are
// bytes. Names that are not UTF-8 are sorted, and written to the JSON, as Python's os.fsdecode()
// returns them.
//
// Errors: NotFound            no such folder
//         InvalidArgument     `root` is not a folder, or has no class folders, or a class folder
//                             has no image; an entry of `skip` that cannot be
//         FailedPrecondition  a folder that cannot be read: named
//         Cancelled           `progress` returned false
Result<IndexContents> BuildFolderIndex(const std::string& root, const FolderProgress& progress,
                                       const std::vector<std::string>& skip = {});

// Whether the folders noted in `index` (attribute "folders") are all there with the same mtimes:
// then no file was added to or removed from them. Of the root only the class folders count: other
// files may come and go beside them, the index too. False if the attribute is missing.
bool FolderIndexIsCurrent(const Index& index);

}  // namespace headrace
