package resource_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

func TestRedacted(t *testing.T) {
	for in, want := range map[string]string{
		"https://feeds.example/all.zip":                 "https://feeds.example/all.zip",
		"https://feeds.example/all.zip?sig=secret&se=1": "https://feeds.example/all.zip?redacted",
		"https://feeds.example?secret":                  "https://feeds.example?redacted",
		"https://user:secret@feeds.example:8443/x":      "https://feeds.example:8443/x",
		"https://feeds.example/x#secret":                "https://feeds.example/x",
		"https://feeds.example/%zz?secret":              "redacted",
		"/srv/feeds/what?.json":                         "/srv/feeds/what?.json",
		"":                                              "",
	} {
		if got := (vuln.AdvisoryFeed{Address: in}).Redacted().Address; got != want {
			t.Errorf("the feed %q is shown as %q, want %q", in, got, want)
		}
		if got := (resource.Subscription{Sink: in}).Redacted().Sink; got != want {
			t.Errorf("the sink %q is shown as %q, want %q", in, got, want)
		}
	}
}
