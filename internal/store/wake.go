package store

// A Queue is a queue in the database whose readers of this process are woken when a transaction of this process adds to
// it. Readers must also poll it, at a low rate, because other replicas add to it, too.
type Queue int

// The queues whose readers are woken.
const (
	InspectionQueue Queue = iota // images to inspect
	DocumentQueue                // images whose attached documents must be read
	MatchQueue                   // packages to compare with advisories, and changed images to announce
	queues
)

// Wakes makes the commit of the transaction wake the readers of a queue.
func (t *Tx) Wakes(q Queue) { t.wakes[q] = true }

// Woken returns a channel that is closed after the next commit of this process that adds to a queue. A reader calls it
// before it reads the queue, so that it misses nothing.
func (s *DB) Woken(q Queue) <-chan struct{} { return s.bells[q].Wait() }

// wake wakes the readers of the queues to which a committed transaction has added.
func (s *DB) wake(t *Tx) {
	for q, added := range t.wakes {
		if added {
			s.bells[q].Ring()
		}
	}
}
