package server

import "sync"

// heapFloor is how much garbage there may be before any of it is collected.
const heapFloor = 16 << 20

// untouched counts as alive, and is no memory: nobody ever writes to it.
var untouched = sync.OnceValue(func() []byte { return make([]byte, heapFloor) })

// KeepHeapFloor is for programs that serve. The collector runs when the heap has
// doubled; little of ours is alive, so under load it would run dozens of times a
// second, and take a tenth of the processors.
func KeepHeapFloor() { untouched() }
