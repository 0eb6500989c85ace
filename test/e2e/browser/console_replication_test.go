package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleReplications sees a replication fail, reads its pending tags and a preview, runs it, pauses it, continues
// it and deletes it. A replication that never ran must not look complete. A viewer must see no buttons for changes, and
// the API must refuse a viewer's requests.
func TestConsoleReplications(t *testing.T) { onBoth(t, walkReplications) }

func walkReplications(t *testing.T, s *site) {
	var awake atomic.Bool // whether the replication that copies only on request has asked
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/night/") {
			awake.Store(true)
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer far.Close()
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "copied", "--parent", "dev")
	group := p.resolve("dev/copied", "groups")
	view := "/console/groups/" + group + "?tab=replications"
	b.console(s, view, s.OwnerEmail, s.OwnerPassword)
	b.read("Nothing here is copied to another registry")
	b.judge("replications-none")
	s.push(t, "dev/copied/app", "v1", "1.0")
	p.run("registry", "replications", "create", "asleep", "--group", "dev/copied", "--address", far.URL,
		"--path", "night", "--trigger", "manual")
	b.reload("has copied nothing yet")
	b.read("only on request")
	p.run("registry", "replications", "create", "far", "--group", "dev/copied", "--address", far.URL, "--path", "acme")
	b.reload("failing")
	b.read("The last copy of 1 tag failed")
	b.read(far.URL + "/acme")
	b.judge("replications")

	b.press("Pending tags far")
	b.read("it answers with status 500")
	b.judge("replication-pending")
	b.press("Done")
	b.press("Preview asleep")
	b.read("A run would copy 1 tag. All selected tags were examined (1 tag).")
	b.judge("replication-preview")
	b.press("Done")

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + view)
	eve.read("failing")
	eve.lacks("Run now…", "Pause…", "Delete…")
	uid := p.run("registry", "replications", "list", "--parent", "dev/copied", "--jq",
		`.[] | select(.name == "far") | .uid`)
	uid = strings.Trim(strings.TrimSpace(uid), `"`)
	eve.refused("POST", "/oci/v1/replicationRuns/"+uid, "{}")
	eve.refused("PATCH", "/oci/v1/replications/"+uid+"?updateMask=paused", `{"paused": true}`)
	eve.refused("DELETE", "/oci/v1/replications/"+uid, "")

	b.press("Pause far")
	b.read("Changes are still queued.")
	b.judge("replication-pause")
	b.press("Pause")
	b.closed()
	b.read("paused")
	var command string
	b.press("Continue far")
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Cancel")
	p.shell("continue", command)
	b.reload("failing")
	if awake.Load() {
		t.Error("a replication copies without a request")
	}
	b.press("Run now asleep")
	b.press("Run")
	b.closed()
	for !awake.Load() {
		b.reload("only on request")
	}
	b.press("Delete far")
	b.read("stay at the target")
	b.press("Delete")
	b.closed()
	b.read("only on request")
	if left := p.run("registry", "replications", "list", "--parent", "dev/copied", "--jq", ".[].name"); strings.Contains(
		left, "far") {
		t.Errorf("the replications are %s", left)
	}
}
