package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleAccessQuestion checks that the Access view answers the question that a person has entered: choosing a
// capability does not discard the other fields, also if one of them is wrong, and the answer names its question.
func TestConsoleAccessQuestion(t *testing.T) { onBoth(t, walkAccessQuestion) }

func walkAccessQuestion(t *testing.T, s *site) {
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	p.run("iam", "groups", "create", "edge", "--parent", "dev/platform")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform/edge", "--issuer", "https://issuer.example.com",
		"--subject", "main")
	edge := p.resolve("dev/platform/edge", "groups")
	b := newTab(t)
	b.console(s, "/console/access", s.OwnerEmail, s.OwnerPassword)
	b.read("Who can groups.list in dev")

	b.fill("Group or repo", "dev/platform/edge")
	b.choose("Capability", "repo.create")
	b.read("Who can repo.create in dev/platform/edge")
	if address := b.address(); !strings.Contains(strings.ReplaceAll(address, "%2F", "/"), "place="+edge) {
		t.Errorf("the address %s is not about the entered group %s", address, edge)
	}
	b.fill("Identity, or everybody", "dev/platform/edge/ci")
	b.choose("Capability", "tag.create")
	b.read("ci: tag.create in dev/platform/edge")

	b.fill("Group or repo", "dev/platform/nowhere")
	b.choose("Capability", "tag.delete")
	b.run("see the error", chromedp.WaitVisible(`form .problem`, chromedp.ByQuery))
	for field, want := range map[string]string{
		`[name="place"]`: "dev/platform/nowhere", `[name="capability"]`: "tag.delete",
		`[name="identity"]`: "dev/platform/edge/ci",
	} {
		if got := b.attribute("main form "+field, "value"); got != want {
			t.Errorf("after an error, %s has %q, want %q", field, got, want)
		}
	}
	b.read("ci: tag.create in dev/platform/edge")
	b.fill("Group or repo", "dev/platform")
	b.press("Answer")
	b.read("ci: tag.delete in dev/platform")
}
