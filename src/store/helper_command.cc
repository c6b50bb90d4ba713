#include "store/helper_command.h"

#include <utility>

#include "base/mutex.h"

namespace headrace {
namespace {

struct Setting {
  Mutex mutex;
  std::vector<std::string> command HEADRACE_GUARDED_BY(mutex);
};

Setting& TheSetting() {
  static auto* const setting = new Setting;  // lives as long as threads that read it
  return *setting;
}

}  // namespace

void SetHelperCommand(std::vector<std::string> command) {
  Setting& setting = TheSetting();
  MutexLock lock(setting.mutex);
  setting.command = std::move(command);
}

std::vector<std::string> HelperCommand(std::string_view program) {
  Setting& setting = TheSetting();
  MutexLock lock(setting.mutex);
  std::vector<std::string> command = setting.command;
  if (!command.empty()) command.emplace_back(program);
  return command;
}

}  // namespace headrace
