#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "headrace/status.h"

namespace headrace {

// Called from time to time during the walk and once at its end, on the calling thread, with the
// number of files found so far. May be empty. Returning false cancels the walk.
using FolderProgress = std::function<bool(std::uint64_t files_found)>;

// Indexes a folder of class folders. Ids and labels are those of torchvision's ImageFolder: each
// folder directly below `root` is a class, sorted by name (bytes); each image file below it is a
// sample, sorted by folder path and then file name. Links are followed. Extensions, in any case:
// .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp. Reads names and file status only; opens no file.
//
// A file that cannot be decoded (zero bytes, a broken link, a pipe, an unsupported format) is a
// sample, too: reading it is an error. A link to a folder that contains the link is not followed.
//
// `skip` excludes files and folders, as if they did not exist. Its entries are names, paths below
// the root with '*' and '?', or kinds such as ":undecodable" (docs/data.md). Ids and labels count
// the remaining files.
//
// Thread safety: may be called from any thread.
//
// Fields: "image" (kImage, extents: whole files), "label" (int64 scalar, inline: number of the
// class).
// Attributes: "format" = "folder"; "classes" = JSON list of class names; "folders" = JSON list of
// [path below root, mtime_ns] of every folder walked, "" for root itself: a later open compares
// them to detect added and removed files; "skip" = JSON list, as given; "report" = JSON list of
// [kind, count, [first names]] of files that cannot be decoded, are hidden or were excluded. Names
// are bytes. Names that are not UTF-8 are sorted, and written to the JSON, as Python's
// os.fsdecode() returns them.
//
// Errors: NotFound            no such folder
//         InvalidArgument     `root` is not a folder, or has no class folders, or a class folder
//                             has no image; an invalid entry of `skip`
//         FailedPrecondition  a folder that cannot be read; the message names it
//         Cancelled           `progress` returned false
Result<IndexContents> BuildFolderIndex(const std::string& root, const FolderProgress& progress,
                                       const std::vector<std::string>& skip = {});

// Whether all folders listed in `index` (attribute "folders") exist with the same mtimes: then no
// file was added or removed. In the root only the list of class folders is compared: other files
// there, such as the index, may change. False if the attribute is missing.
bool FolderIndexIsCurrent(const Index& index);

}  // namespace headrace
