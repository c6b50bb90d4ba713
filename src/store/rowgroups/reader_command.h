#pragma once

#include <string>
#include <vector>

namespace headrace {

// The program and arguments that start a reader of row groups, for all stores of this process. An
// index never says what to run: this process decides. Two arguments follow: the
// descriptor of the reader's socket, and the number of this process.
//
// Thread safety: any thread.
void SetReaderCommand(std::vector<std::string> command);

// Empty: none was set.
std::vector<std::string> ReaderCommand();

}  // namespace headrace
