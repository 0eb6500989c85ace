package server

import "sync"

// ballastSize is how much garbage may accumulate before any of it is collected.
const ballastSize = 16 << 20

// ballast counts as live heap but occupies no memory, because nothing writes to
// it.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

// AllocateBallast reduces garbage collection in a program that serves. The
// collector runs when the heap has doubled. Little of ours is live, so under load
// it would run dozens of times a second and use a tenth of the processors.
func AllocateBallast() { ballast() }
