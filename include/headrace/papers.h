#pragma once

// Policies of published papers, to reproduce and compare their results: the order of Redox and
// Brand, NoPFS's guess of what other nodes have, Lobster's shares of lanes and its schedules. They
// lie above the core and use its tables: the core neither includes nor names them.

namespace headrace {

// Registers them: then OrderSpec::name, TiersSpec::ask and LoaderOptions::schedule may name them.
// A program calls it before it makes its first object that uses one.
//
// Thread safety: may be called from any thread. Another call changes nothing.
// Errors: another policy that has a name of one of them is a programmer error.
void RegisterPapers();

}  // namespace headrace
