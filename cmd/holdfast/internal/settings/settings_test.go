package settings

import "testing"

func TestIsUID(t *testing.T) {
	const root = "41c2bd7f0f6a2c1141c2bd7f0f6a2c1141c2bd7f"
	for text, want := range map[string]bool{
		root: true, root + "/00000000000000b2": true,
		"": false, "acme": false, root[1:]: false, root + "/": false, root + "/b2": false, root + "\n": false,
		"x" + root: false,
	} {
		if got := IsUID(text); got != want {
			t.Errorf("isUID(%q) = %v, want %v", text, got, want)
		}
	}
}
