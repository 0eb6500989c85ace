package noun

import (
	"testing"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func TestPathOf(t *testing.T) {
	const root = "41c2bd7f0f6a2c1141c2bd7f0f6a2c1141c2bd7f"
	names := map[string]string{root + "/00000000000000b2": "platform"}
	tests := map[string]struct{ uid, want string }{
		"an organization":                       {root, "/ci"},
		"below a hidden group":                  {root + "/00000000000000a1", "/.../ci"},
		"below a visible group in a hidden one": {root + "/00000000000000b2/00000000000000c3", "/.../platform/ci"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &iampb.Group{Uid: tt.uid, Name: "ci"}
			if got := pathOf(g.ProtoReflect(), names); got != tt.want {
				t.Errorf("path = %q, want %q", got, tt.want)
			}
		})
	}
}
