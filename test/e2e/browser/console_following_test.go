package browser_test

import "testing"

// TestConsoleFollowing opens the sync status of a repo, compares the repo with its source, and stops the sync. A
// viewer must see no buttons, and the API must refuse a viewer's requests.
func TestConsoleFollowing(t *testing.T) { onBoth(t, walkFollowing) }

func walkFollowing(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("registry", "repos", "create", "origin", "--parent", "dev")
	p.run("registry", "repos", "create", "double", "--parent", "dev", "--source", "dev/origin")
	repo := p.resolve("dev/double", "repos")
	b.console(s, "/console/repos/"+repo, s.OwnerEmail, s.OwnerPassword)
	b.read("Follows")
	b.reload("equal to it since")
	b.judge("following")
	b.press("Compare now")

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/repos/" + repo)
	eve.read("Follows")
	eve.lacks("Compare now", "Stop syncing…")
	eve.refused("POST", "/oci/v1/syncRuns/"+repo, "{}")

	p.run("registry", "repos", "delete", "dev/origin", "--yes")
	b.reload("because the source is gone")
	b.judge("following-failed")
	b.press("Stop syncing…")
	b.read("The repo keeps its tags, and can be pushed to again.")
	b.judge("following-stop")
	b.press("Stop syncing")
	b.closed()
	b.lacks("Compare now")
	if got := p.run("registry", "repos", "get", "dev/double", "--jq", ".sync_config"); got != "null" && got != "" {
		t.Errorf("the repo still has a source: %s", got)
	}
}
