package page_test

import (
	"bytes"
	"encoding/base64"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/page"
)

// TestAttackTokenContent checks that a client reads neither the position nor the filter in a token,
// and that the length of a token does not reveal the size of the number in it.
func TestAttackTokenContent(t *testing.T) {
	tokens := page.NewTokens([]byte("key"), time.Now)
	_, first, err := page.Resume(tokens, list, filter{Name: "a name"}, page.Params{})
	if err != nil {
		t.Fatal(err)
	}
	lengths := map[int]bool{}
	for _, number := range []int64{0, 7, 123456789, math.MaxInt64} {
		token := tokens.Next(first, page.Cursor{Number: number, Key: "a key", UID: "a uid"})
		lengths[len(token)] = true
		b, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"a name", "a key", "a uid", "123456789", "\x07\x5b\xcd\x15", `"f":`} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("the token of %d contains %q: %q", number, secret, b)
			}
		}
		if again := tokens.Next(first, page.Cursor{Number: number, Key: "a key", UID: "a uid"}); again == token {
			t.Errorf("two tokens of the position %d are equal", number)
		}
	}
	if len(lengths) != 1 {
		t.Errorf("the lengths of tokens differ: %v", lengths)
	}
}

// TestTokensOfOlderReplicas checks that tokens of version 0.1 are accepted, and that tokens have its
// form as long as a replica of that version could receive them.
func TestTokensOfOlderReplicas(t *testing.T) {
	older := page.NewTokens([]byte("key"), time.Now)
	older.WithOlder = func() bool { return true }
	newer := page.NewTokens([]byte("key"), time.Now)
	newer.WithOlder = func() bool { return false }
	whole, cursor := filter{Name: "a name"}, page.Cursor{Key: "k", Number: 7, UID: "u"}
	_, first, err := page.Resume(newer, list, whole, page.Params{})
	if err != nil {
		t.Fatal(err)
	}
	token := older.Next(first, cursor)
	if b, err := base64.RawURLEncoding.DecodeString(token); err != nil || !bytes.Contains(b[16:], []byte(`"n":7`)) {
		t.Errorf("an older replica cannot read %q, %v", b, err)
	}
	for _, token := range []string{token, newer.Next(first, cursor)} {
		f, r, err := page.Resume(newer, list, filter{}, page.Params{Token: token})
		if err != nil || f.Name != whole.Name || !cmp.Equal(r.After, &cursor) {
			t.Errorf("continues with %+v of %+v, %v", r, f, err)
		}
	}
}
