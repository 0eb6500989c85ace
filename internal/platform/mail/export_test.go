package mail

import "context"

// SendDue sends every message that is due, and returns how many there were.
func (q *Queue) SendDue(ctx context.Context) (n int, _ error) {
	for {
		sent, err := q.sendNext(ctx)
		if err != nil || !sent {
			return n, err
		}
		n++
	}
}

// PlainName is plainName.
func PlainName(name string) string { return plainName(name) }

// IsAddress is isAddress.
func IsAddress(text string) bool { return isAddress(text) }
