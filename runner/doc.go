// Package runner carries on a conversation over the Responses API: it sends the whole history with every request,
// carries out what the responses ask for on functions, a browser and a computer, and lets hosted tools and MCP servers
// work alongside, until there is an answer or a bound is reached. [New] makes a runner of what there is, [Runner.Run]
// makes a run, [Runner.Iterate] shows it turn by turn.
//
// # Nothing happens by accident
//
// A response is checked whole, as JSON as it came, before any of its calls is carried out: every item, every id,
// the arguments of every function. Calls then run in the order of the response, once. A failed request, a panic or a
// resumed run is never a reason to repeat one. The last permitted response starts nothing. Who may answer for the user
// is never guessed: without an approver, computer calls and MCP approval requests end the run.
//
// With [Options.Eager] a call runs as soon as it has arrived whole. What was checked then has to be in the finished
// response, or the run ends.
//
// # What can be known afterwards
//
// An [*Error] says which calls were attempted and which of them produced an output, and nothing of what drivers, pages,
// arguments or the API said: those may hold secrets. A [Diagnostic] says how long each stage took and what it cost, and
// a [Ledger] keeps a record from before each effect, so that after a crash one knows what may have happened. A run can
// be resumed from a record of a boundary between two turns, from no other.
//
// # Long conversations
//
// A [ContextBudget] bounds the input of a request. What is left out of one request stays in the history, calls and their
// outputs go together, and the newest screenshots stay. The cost of a turn here does not grow with the bytes of the
// history: the input is put together on its way out, from parts that were checked and encoded once.
// BenchmarkTurn, with a picture of 1 MB in each turn, without the model, the network and the encoding of pictures, on two
// busy cores (load 7), in microseconds a turn:
//
//	turns           10    50    100   500
//	plain           253   406   485   395
//	with a budget   404   559   282   460
//
// # Concurrency
//
// A runner makes one run at a time, and a run does one thing at a time, save for functions that are independent. No
// goroutine outlives its run; callbacks that are running are awaited, also when the context is done.
package runner
