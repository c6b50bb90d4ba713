#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The names of the programs that stores of this process start to help them. Python knows what they
// are: python/headrace/_process/helpers.py.
inline constexpr std::string_view kGroupReaderProgram = "group-reader";  // of row groups
inline constexpr std::string_view kFetcherProgram = "fetcher";           // of object stores

// The program and arguments that start a helper. An index never says what to run: this process
// decides. Three arguments follow: the name of the helper's program, the descriptor of its socket,
// and the number of this process.
//
// Thread safety: any thread.
void SetHelperCommand(std::vector<std::string> command);

// With the name of `program`; empty: no command was set.
std::vector<std::string> HelperCommand(std::string_view program);

}  // namespace headrace
