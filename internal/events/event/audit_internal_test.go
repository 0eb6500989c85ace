package event

import (
	"os"
	"regexp"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestEveryEventIsAudited checks that the audit log can show every type of event: a type without an entry in
// listCapabilities would be hidden from everybody.
func TestEveryEventIsAudited(t *testing.T) {
	source, err := os.ReadFile("../../core/resource/event.go")
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile(`EventType\s+= "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(types) < 80 {
		t.Fatalf("found only %d types of events", len(types))
	}
	for _, m := range types {
		if _, ok := listCapability(resource.EventType(m[1])); !ok {
			t.Errorf("nobody can see %s in the audit log: add its capability to listCapabilities", m[1])
		}
	}
}
