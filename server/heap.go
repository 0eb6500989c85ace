package server

import "sync"

// ballastSize is how much garbage there may be before any of it is collected.
const ballastSize = 16 << 20

// ballast counts as alive, and is no memory: nobody ever writes to it.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

// AllocateBallast is for programs that serve. The collector runs when the heap has
// doubled; little of ours is alive, so under load it would run dozens of times a
// second, and take a tenth of the processors.
func AllocateBallast() { ballast() }
