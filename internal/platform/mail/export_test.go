package mail

import "context"

// SendDue sends every message that is due, and returns their number.
func (q *Queue) SendDue(ctx context.Context) (n int, _ error) {
	for {
		sent, err := q.sendNext(ctx)
		if err != nil || !sent {
			return n, err
		}
		n++
	}
}

// PlainName exports plainName for tests.
func PlainName(name string) string { return plainName(name) }

// IsAddress exports isAddress for tests.
func IsAddress(text string) bool { return isAddress(text) }
