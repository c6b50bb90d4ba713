#include "module.h"

#include "headrace/papers.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ core of headrace. Private: use the package `headrace`.";
  module.attr("version") = HEADRACE_VERSION;
  headrace::RegisterPapers();
  headrace::bindings::BindStatus(module);
  headrace::bindings::BindIndex(module);
  headrace::bindings::BindHomes(module);
  headrace::bindings::BindMixture(module);
  headrace::bindings::BindIndexWriting(module);
  headrace::bindings::BindCodec(module);
  headrace::bindings::BindStored(module);
  headrace::bindings::BindModel(module);
  headrace::bindings::BindExit(module);
  headrace::bindings::BindLoaderOptions(module);
  headrace::bindings::BindLoader(module);
  headrace::bindings::BindOrder(module);
  headrace::bindings::BindQuality(module);
  headrace::bindings::BindProfile(module);
  headrace::bindings::BindPlan(module);
  headrace::bindings::BindSimulation(module);
  headrace::bindings::BindWorkers(module);
}
