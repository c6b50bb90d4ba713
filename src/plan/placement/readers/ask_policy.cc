#include "plan/placement/readers/ask_policy.h"

namespace headrace {

Registry<AskPolicy>& AskPolicies() {
  static const AskPolicy plan("plan", nullptr);
  static Registry<AskPolicy> policies("ask", {&plan});
  return policies;
}

}  // namespace headrace
