package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

type copies = registry.Replication

// TestReplicationValidate checks which replications are refused, and that the error names the field.
func TestReplicationValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*copies)
		field  string // "" if the replication is valid
	}{
		"the least":       {func(*copies) {}, ""},
		"patterns":        {func(r *copies) { r.Repos, r.Tags = []string{"a/**", "!b"}, []string{"v*", "!*-dev"} }, ""},
		"a path":          {func(r *copies) { r.Path = "acme/copies" }, ""},
		"a schedule":      {func(r *copies) { r.Trigger, r.Interval = registry.OnSchedule, time.Hour }, ""},
		"no name":         {func(r *copies) { r.Name = "" }, "name"},
		"no address":      {func(r *copies) { r.Address = "" }, "address"},
		"a page":          {func(r *copies) { r.Address = "https://a.example/x" }, "address"},
		"a password":      {func(r *copies) { r.Address = "https://u:p@a.example" }, "address"},
		"a path above":    {func(r *copies) { r.Path = "../other" }, "path"},
		"capitals":        {func(r *copies) { r.Path = "Acme" }, "path"},
		"a long path":     {func(r *copies) { r.Path = strings.Repeat("a", 129) }, "path"},
		"a bad realm":     {func(r *copies) { r.Realm = "file:///etc/passwd" }, "realm"},
		"no repo pattern": {func(r *copies) { r.Repos = []string{""} }, "repos"},
		"many repos":      {func(r *copies) { r.Repos = make([]string, 101) }, "repos"},
		"half a class":    {func(r *copies) { r.Tags = []string{"["} }, "tags"},
		"a slash":         {func(r *copies) { r.Tags = []string{"a/b"} }, "tags"},
		"only a mark":     {func(r *copies) { r.Tags = []string{"!"} }, "tags"},
		"no trigger":      {func(r *copies) { r.Trigger = 0 }, "trigger"},
		"a new trigger":   {func(r *copies) { r.Trigger = 4 }, "trigger"},
		"too often":       {func(r *copies) { r.Trigger, r.Interval = registry.OnSchedule, time.Minute }, "interval"},
		"too rarely":      {func(r *copies) { r.Trigger, r.Interval = registry.OnSchedule, 1e18 }, "interval"},
		"no schedule":     {func(r *copies) { r.Interval = time.Hour }, "interval"},
		"an identity":     {func(r *copies) { r.Identity = "robot" }, "identity"},
	}
	for name, tt := range tests {
		r := registry.Replication{Name: "far", Address: "https://registry.example.org", Trigger: registry.OnPush}
		tt.change(&r)
		err := r.Validate()
		if (err == nil) != (tt.field == "") || err != nil && !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%s: the error is %v, want one about %q", name, err, tt.field)
		}
	}
}

func TestReplicationTargetRepo(t *testing.T) {
	for _, tt := range []struct {
		path, below, want string
		ok                bool
	}{
		{"", "app", "app", true},
		{"acme", "team/app", "acme/team/app", true},
		{"acme", "App", "acme/App", false},
		{"acme", strings.Repeat("a", 251), "acme/" + strings.Repeat("a", 251), false},
	} {
		r := registry.Replication{Path: tt.path}
		if got, ok := r.TargetRepo(tt.below); got != tt.want || ok != tt.ok {
			t.Errorf("%q below %q is %q, %t", tt.below, tt.path, got, ok)
		}
	}
}
