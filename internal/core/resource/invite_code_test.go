package resource_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestInviteCodes checks that codes of both forms present their invite and secret, and that the code of an invite to an
// organization fits on a line.
func TestInviteCodes(t *testing.T) {
	secret := [16]byte{1, 2, 3, 255}
	digest := sha256.Sum256(secret[:])
	uid := resource.NewRoot()
	for depth := range resource.MaxDepth {
		if depth > 0 {
			uid = uid.NewChild()
		}
		short, long := resource.NewInviteCode(uid, secret), resource.LongInviteCode(uid, "k", secret)
		for _, code := range []string{short, long, " " + short + "\n"} {
			p, ok := resource.ReadInviteCode(code)
			if !ok || p.UID != uid || !slices.Equal(p.Digest, digest[:]) {
				t.Errorf("%s presents %+v, %v, want %s", code, p, ok, uid)
			}
		}
		if depth == 1 && len(short) > 60 {
			t.Errorf("the code of an invite to an organization has %d characters", len(short))
		}
		for _, code := range []string{short[1:], short[:len(short)-1], "B" + short[1:], short + "AAAAAAAAAAA"} {
			if p, ok := resource.ReadInviteCode(code); ok && p.UID == uid {
				t.Errorf("%s, which is not a code, presents %s", code, p.UID)
			}
		}
	}
	for _, code := range []string{"", "AQ", "e30", strings.Repeat("A", 2000), "%"} {
		if p, ok := resource.ReadInviteCode(code); ok {
			t.Errorf("%q presents %+v", code, p)
		}
	}
}
