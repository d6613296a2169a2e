// Package trace keeps the record of a run in a folder: what the model said and asked for, what was asked of whom, what
// was done, how long it took, and the pictures. [Create] begins one, [Open] reads it, and [WritePage] makes a page of it
// to look at.
//
// # The folder
//
//	trace.jsonl            the records, a JSON object on each line
//	pictures/SHA256.png    the pictures as they were sent, each once, named by the SHA-256 of the file (or .jpeg)
//
// The files can be read by their owner alone (modes 0700 and 0600). A line is written in one piece and never changed, and
// a picture before the line that tells of it. So a run that is killed leaves a trace that is whole up to its last complete
// line, and [Open] leaves out what comes after that. A crash of the system may take more: nothing waits for the disk.
//
// # The lines
//
// Each line is a [Record]: the time, the step, which is the number of responses so far, and exactly one of these members.
//
//	start      the first line: version of this format, program, task, settings
//	response   a response of the model: its text, and what it cost
//	call       a computer call: its actions as the model put them (shown), in the space of the picture that it saw,
//	           and as they were to be done (actions), in screen space; the screenshot at its end is there in any case
//	approval   a question that was asked, and the answer
//	stage      a part of the work that was finished: what, how it ended, how long it took
//	picture    a picture for the model: what it shows, how the screen came to rest before it, hash and size
//	note       something the trace itself has to say, such as that it is full
//	end        the last line: the error, if any
//
// Times that end in _ns are in nanoseconds. Areas are [x, y, width, height] in screen space. Members that a reader does
// not know are to be ignored; where that would be wrong the version is another.
//
// # What is not written
//
// Keys of the API, and whatever looks like one, are replaced before anything is written, in every string. Typed text is
// on request; see [Options]. Pictures show what they show: what must not be in them has to be masked by the driver.
//
// # Bounds
//
// A trace has a limit on the disk. When the pictures have filled it, all but a sixteenth, no more are kept; the lines go
// on, with the hashes, until the rest is full too. A trace never makes a run fail: what goes wrong with it is said to a
// logger, once, and is the error of [Writer.Close].
package trace
