#pragma once

// papers/ has policies of published papers, to reproduce and compare their results: the order of
// Redox and Brand (redox/), NoPFS's guess of what other nodes have (nopfs/), Lobster's shares of
// lanes and its schedules (lobster/). They lie above the core and use its tables, as policies of a
// user do: the core neither includes nor names them.

namespace headrace {

// Adds them to Orders(), AskPolicies(), LanePolicies() and ScheduleFormats(), at the end. A program
// calls it before it makes its first object that uses one.
//
// Thread safety: may be called from any thread. Another call changes nothing.
// Errors: a row of the program's own that has a name of one of them is a programmer error.
void RegisterPapers();

}  // namespace headrace
