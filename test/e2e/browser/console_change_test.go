package browser_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/mailtest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// TestConsoleChanges checks that a person with the needed permissions can grant and remove a role and delete tags. A
// person without them does not see the buttons, and the API refuses their requests.
func TestConsoleChanges(t *testing.T) { onBoth(t, walkChanges) }

func walkChanges(t *testing.T, s *site) {
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	p.run("iam", "identities", "create", "ci", "--parent", "dev/platform", "--issuer", "https://issuer.example.com",
		"--subject", "main")
	s.push(t, "dev/platform/web", "v1", "1.2.0")
	s.push(t, "dev/platform/web", "v2", "1.3.0")
	group, repo, ci := p.resolve("dev/platform", "groups"), p.resolve("dev/platform/web", "repos"),
		p.resolve("dev/platform/ci", "identities")

	b := newTab(t)
	b.console(s, "/console/groups/"+group+"?tab=people", s.OwnerEmail, s.OwnerPassword)
	b.read("No role is granted here")
	b.press("Grant a role")
	b.fill("Who", "dev/platform/nobody")
	b.press("Check")
	b.read("Request") // the page shows the server's error message and the request ID
	b.fill("Who", "dev/platform/ci")
	b.press("Check")
	b.read("and in everything below it")
	b.judge("grant")
	b.press("Grant")
	b.closed()
	b.press("Remove viewer of ci")
	b.run("confirm", chromedp.Click(`//dialog//button[.="Remove"]`, chromedp.NodeVisible))
	b.read("No role is granted here")
	b.many(s, p, group)

	b.open(s.BaseURL + "/console/repos/" + repo)
	b.press("Move v1")
	b.fill("Tag or digest of the new image", "nosuch")
	b.press("Check")
	b.run("there is no such image", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.fill("Tag or digest of the new image", "v2")
	b.press("Check")
	b.read("1 package changed")
	b.judge("move")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Move the tag")
	b.closed()
	p.shell("move", command)
	if v1, v2 := p.run("registry", "tags", "get", "dev/platform/web:v1", "--columns", "digest"),
		p.run("registry", "tags", "get", "dev/platform/web:v2", "--columns", "digest"); v1 != v2 {
		t.Errorf("v1 refers to %s, want %s", v1, v2)
	}
	b.open(s.BaseURL + "/console/repos/" + repo + "?tab=history&tag=v1")
	b.press("Move it back here…")
	b.press("Check")
	b.read("pulls of v1 return")
	b.press("Move the tag")
	b.closed()
	if v1, v2 := p.run("registry", "tags", "get", "dev/platform/web:v1", "--columns", "digest"),
		p.run("registry", "tags", "get", "dev/platform/web:v2", "--columns", "digest"); v1 == v2 {
		t.Error("v1 was not moved back")
	}
	b.open(s.BaseURL + "/console/repos/" + repo)
	b.run("choose a tag", chromedp.Click(`input[aria-label="Select v1"]`, chromedp.ByQuery))
	b.press("Delete 1 tag…")
	b.read("Pulls by these tags stop working")
	b.judge("delete")
	b.press("Delete")
	b.run("it is gone", chromedp.WaitNotPresent(`input[aria-label="Select v1"]`, chromedp.ByQuery))
	b.read("v2")
	b.restoring(s, p, repo)

	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/groups/" + group + "?tab=people")
	eve.read("Inherited from dev")
	eve.lacks("Grant a role", "Remove")
	eve.open(s.BaseURL + "/console/repos/" + repo)
	eve.read("v2")
	eve.lacks("Move…")
	eve.open(s.BaseURL + "/console/repos/" + repo + "?tab=retention")
	eve.read("With a tag that matches")
	eve.lacks("Change the rules…", "Run the rules…")
	eve.refused("GET", "/oci/v1/retentionPreviews/"+repo, "")
	eve.open(s.BaseURL + "/console/repos/" + repo + "?tab=trash")
	eve.read("v1")
	eve.lacks("Restore…", "Empty the trash…")
	eve.refused("POST", "/registry/v2beta1/tags/"+repo, `{"name": "v2", "digest": "sha256:`+strings.Repeat("0", 64)+`"}`)
	eve.refused("POST", "/iam/v2beta1/roleBindings/"+group,
		fmt.Sprintf(`{"identityUid": %q, "roleUid": %q}`, ci, resource.OwnerRole))
}

// restoring restores a deleted tag, sets cleanup rules that delete the tag again, and runs the rules.
func (b *tab) restoring(s *site, p *person, repo string) {
	b.t.Helper()
	b.open(s.BaseURL + "/console/repos/" + repo + "?tab=trash")
	b.press("Restore v1")
	b.read("is there again")
	b.judge("restore")
	b.press("Restore")
	b.closed()
	b.read("Nothing here was deleted lately")
	b.open(s.BaseURL + "/console/repos/" + repo + "?tab=retention")
	b.read("Everything is kept")
	b.press("Set rules…")
	b.press("Set the rules")
	b.run("rules that keep nothing are refused",
		chromedp.WaitVisible(`dialog .problem, dialog [aria-invalid]`, chromedp.ByQuery))
	b.fill("With a tag that matches one of these patterns", "v2 release-*")
	b.judge("retention-rules")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Set the rules")
	b.closed()
	p.shell("the same rules", command)
	b.read("1 image of 2 with 1 tag")
	b.judge("retention")
	b.press("Run the rules…")
	b.read("exactly as shown")
	b.press("Delete")
	b.closed()
	b.read("Nothing would be deleted")
	if got := p.run("registry", "trash", "list", "--repo", "dev/platform/web"); !strings.Contains(got, "v1") {
		b.t.Errorf("the trash after a run: %s", got)
	}
	b.open(s.BaseURL + "/console/groups/" + string(resource.UID(repo).Parent()) + "?tab=trash")
	b.read("v1")
	b.judge("trash")
}

// many grants a role to several identities at once, sets an expiry for the grants, and removes them again. It checks
// that the address of the page contains the selection.
func (b *tab) many(s *site, p *person, group string) {
	b.t.Helper()
	p.run("iam", "identities", "create", "cd", "--parent", "dev/platform", "--issuer", "https://issuer.example.com",
		"--subject", "release")
	b.press("Grant a role")
	b.fill("Who", "dev/platform/ci")
	b.press("And somebody else")
	b.fill("Who", "dev/platform/cd")
	b.press("Check")
	b.read("ci, cd will be viewer")
	b.judge("grant-many")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Grant")
	b.closed()
	grants := command
	b.run("choose all", chromedp.Click(`input[aria-label="Select all rows"]`, chromedp.ByQuery))
	b.press("Change the end of 2…")
	b.judge("end-many")
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Change")
	b.closed()
	b.read("in 24 hours")
	for line := range strings.Lines(command) {
		p.shell("end many", strings.TrimSpace(line)+" --dry-run")
	}
	b.run("choose one", chromedp.Click(`input[aria-label^="Select viewer of ci"]`, chromedp.ByQuery))
	b.open(b.address()) // the address contains the selection, so the selection survives a reload
	b.press("Remove 1…")
	b.press("Keep it")
	b.run("choose all", chromedp.Click(`input[aria-label="Select all rows"]`, chromedp.ByQuery))
	b.press("Remove 2…")
	b.read("Remove 2 roles?")
	b.read("2 identities lose") // the server has computed this number
	b.judge("remove-many")
	b.run("confirm", chromedp.Click(`//dialog//button[.="Remove"]`, chromedp.NodeVisible))
	b.read("No role is granted here")
	if got := b.address(); strings.Contains(got, "selected=") {
		b.t.Errorf("the address still has a selection: %s", got)
	}
	for line := range strings.Lines(grants) {
		p.shell("grant many", strings.TrimSpace(line))
	}
	b.open(s.BaseURL + "/console/groups/" + group + "?tab=people")
	b.run("see the roles", chromedp.WaitVisible(`button[aria-label="Remove viewer of cd"]`, chromedp.ByQuery))
}

// closed waits until the dialog is closed. The dialog closes only after the page behind it shows the change.
func (b *tab) closed() {
	b.t.Helper()
	b.run("the dialog closes", chromedp.WaitNotPresent(`dialog`, chromedp.ByQuery))
}

// eve creates the user Eve, with the given role flags if any, and returns a browser window in which she is signed in.
func (s *site) eve(t *testing.T, role ...string) *tab {
	t.Helper()
	return s.newcomer(t, "eve@example.com", "Eve Example", role...)
}

// mallory creates the user Mallory with the role viewer, and returns a browser window in which she is signed in.
func (s *site) mallory(t *testing.T) *tab {
	t.Helper()
	return s.newcomer(t, "mallory@example.com", "Mallory Example", "--role", "viewer")
}

func (s *site) newcomer(t *testing.T, email, name string, role ...string) *tab {
	t.Helper()
	var made struct{ Link struct{ URL string } }
	s.owner(t).json(&made,
		append([]string{"iam", "accounts", "create", email, "--parent", "dev", "--name", name}, role...)...)
	b := newTab(t)
	b.unjudged = s.unjudged
	b.open(made.Link.URL)
	b.fill("Password", "nine unrelated words")
	b.press("Begin")
	b.see("Your account")
	return b
}

// lacks fails the test if the page has a button with one of these names.
func (b *tab) lacks(buttons ...string) {
	b.t.Helper()
	for _, button := range buttons {
		var there bool
		b.run("look for "+button,
			chromedp.Evaluate(fmt.Sprintf(
				`[...document.querySelectorAll("main button")].some(b => b.innerText.trim() === %q)`, button), &there))
		if there {
			b.t.Errorf("a person without permission sees the button %q", button)
		}
	}
}

// refused sends a request with the session of this window, and fails the test unless the API answers with status 403.
func (b *tab) refused(method, path, body string) {
	b.t.Helper()
	var status int
	b.run("try anyhow", chromedp.Evaluate(fmt.Sprintf(`fetch(%q, {method: %q, `+
		`headers: {"Holdfast-Console": "1", "Content-Type": "application/json"},
		body: %q || undefined}).then(r => r.status)`, path, method, body), &status,
		func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	if status != http.StatusForbidden {
		b.t.Errorf("%s %s of a person without permission: status %d", method, path, status)
	}
}

// TestConsoleSearch checks that the search works with the keyboard alone, from different pages.
func TestConsoleSearch(t *testing.T) { onBoth(t, walkSearch) }

func walkSearch(t *testing.T, s *site) {
	p := s.owner(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	p.run("iam", "groups", "create", "platform-edge", "--parent", "dev/platform")
	digest := s.push(t, "dev/platform/web", "v1", "1.2.0")
	b := newTab(t)
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	b.see("Home")
	said := b.complaints()
	b.find("platf")
	b.option("platform-edge")
	b.judge("search-dialog")
	b.keys(kb.ArrowDown)
	b.keys(kb.Enter)
	b.see("platform-edge")
	b.closed()
	b.find(digest[len("sha256:"):][:12])
	b.option("manifest")
	b.keys(kb.Enter)
	b.see(digest[:len("sha256:")+12])
	b.read("1 package")
	b.find("")
	// The search lists this group because the page of the group was opened before.
	b.option("dev/platform/platform-edge")
	b.judge("search-recent")
	b.keys(kb.Escape)
	b.press("Search")
	b.see("Search")
	b.option("platform-edge")
	if got := b.focused(); !strings.HasPrefix(got, "Name, path, uid") {
		t.Errorf("the focus is on %q, want the field", got)
	}
	b.keys("dev/platform/w")
	b.option("dev/platform/web")
	if got := b.address(); !strings.HasSuffix(got, "q=dev%2Fplatform%2Fw") {
		t.Errorf("the search text is not in the address %s", got)
	}

	slow := `{ const send = window.fetch; window.fetch = async (r, ...more) => {
		if (!r.url.endsWith("query=pl")) return send(r, ...more);
		window.asked = true;
		await new Promise(done => setTimeout(done, 1000));
		const answer = await send(r.url, {headers: r.headers}); // although the page no longer waits for it
		window.late = true;
		return answer;
	} }`
	b.run("have one answer come late", chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(slow).Do(ctx)
		return err
	}))
	b.open(s.BaseURL + "/console/search")
	b.run("wait for the field", chromedp.WaitVisible(`[role="combobox"]:focus`, chromedp.ByQuery))
	b.keys("pl")
	b.run("let it be asked for", chromedp.Poll(`window.asked`, nil))
	b.keys("atform-e")
	b.option("platform-edge")
	b.run("wait for the late answer", chromedp.Poll(`window.late`, nil), chromedp.Sleep(100*time.Millisecond))
	var options int
	b.run("count", chromedp.Evaluate(`document.querySelectorAll("[role=option]").length`, &options))
	if options != 1 {
		t.Errorf("the list has %d options for platform-e, want 1: a late response is shown", options)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}

	eve := s.eve(t)
	eve.open(s.BaseURL + "/console/search?q=platf")
	eve.read("Nothing that you may see")
}

// unsigned returns a token with this issuer and subject, and without a valid signature.
func unsigned(issuer, subject string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg": "RS256", "kid": "1"}`)) + "." + part(fmt.Appendf(nil,
		`{"iss": %q, "sub": %q, "aud": "holdfast", "iat": 1795000000, "exp": 1895000000, `+
			`"note": "<script>window.hacked = 1</script>"}`,
		issuer, subject)) + ".c2lnbmVk"
}

// deny sends a token with an invalid signature for an identity. The server must refuse the token.
func (s *site) deny(t *testing.T, identity string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.BaseURL+"/sts/exchange?aud="+url.QueryEscape(s.BaseURL)+"&identity="+url.QueryEscape(identity), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+unsigned("https://elsewhere.example.com", "main"))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // the body is not read
	if answer.StatusCode < 400 || answer.StatusCode >= 500 {
		t.Fatalf("an unsigned token: %s", answer.Status)
	}
}

// TestConsolePeople checks that an invited person can join, and that an owner can end one of that person's sessions.
func TestConsolePeople(t *testing.T) { onBoth(t, walkPeople) }

func walkPeople(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/people?tab=invites", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("No invite is pending")
	b.press("Invite somebody")
	b.judge("invite")
	b.press("Create the invite")
	b.read("It is shown only now")
	b.judge("invite-link")
	var link string
	b.run("read the link", chromedp.Text(`dialog pre`, &link, chromedp.ByQuery))
	b.press("Done")
	b.read("whoever has the link")

	eve := s.eve(t) // Eve has no role yet
	eve.open(link)
	eve.press("Allow")
	within(t, "she has joined", func() bool { return strings.Contains(eve.address(), "/welcome") })
	eve.open(s.BaseURL + "/console/people?tab=invites")
	eve.read("No invite is pending") // Eve has used the only invite
	eve.lacks("Invite somebody", "Delete")
	eve.refused("POST", "/iam/v2beta1/groupInvites/"+s.OrganizationUID,
		fmt.Sprintf(`{"roleUid": %q, "ttl": "3600s"}`, resource.OwnerRole))
	eve.open(s.BaseURL + "/console/people/" + s.OwnerUID)
	eve.read("What they did")
	eve.lacks("End")

	b.press("Joins")
	b.read("eve example")
	b.judge("joins")
	b.press("eve example")
	b.see("Eve Example")
	b.read("auth.registered")
	b.judge("person-eve")
	for _, command := range b.commands() {
		p.shell("person", command)
	}
	b.press("End")
	b.read("Its tokens are void")
	b.press("End the session")
	b.read("Not signed in anywhere")
	eve.open(s.BaseURL + "/console/")
	eve.see("Sign in")

	b.readmit(s, p)
	p.run("iam", "invites", "create", "--parent", "dev", "--role", "viewer", "--ttl", "7d")
	b.open(s.BaseURL + "/console/people?tab=invites")
	b.press("Delete")
	b.read("The link stops working")
	b.press("Delete the invite")
	b.read("No invite is pending")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// readmit resets the sign-in of Eve, who sets a new password with the link, and then deletes her account.
func (b *tab) readmit(s *site, p *person) {
	b.t.Helper()
	b.open(s.BaseURL + "/console/people?tab=accounts")
	b.press("Reset eve@example.com")
	b.read("stays good until they use it")
	b.run("all factors", chromedp.Click(`dialog input[type=checkbox]`, chromedp.ByQuery))
	b.judge("reset")
	var command, link string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Make the link")
	b.read("It is shown only now")
	b.judge("reset-link")
	b.run("read the link", chromedp.Text(`dialog pre`, &link, chromedp.ByQuery))
	b.press("Done")
	eve := newTab(b.t)
	eve.open(link)
	eve.fill("New password", "eight other unrelated words")
	eve.run("choose it", chromedp.Submit(`form`, chromedp.ByQuery))
	eve.see("Your account")
	eve.open(s.BaseURL + "/console/people?tab=accounts")
	eve.read("Signs in with")
	eve.lacks("Reset…", "Delete")
	account := p.run("iam", "accounts", "list", "--parent", "dev",
		"--jq", `.[] | select(.email == "eve@example.com") | .uid`)
	eve.refused("POST", "/signin/v1/accountLinks/"+account, "{}")
	p.shell("reset", command)
	b.press("Delete eve@example.com")
	b.read("loses all roles")
	b.press("Delete the account")
	b.run("she is gone", chromedp.WaitNotPresent(`button[aria-label="Delete eve@example.com"]`, chromedp.ByQuery))
}

// TestConsoleWorkloads checks the page that explains whether a token would be accepted, for one workload and for all.
func TestConsoleWorkloads(t *testing.T) { onBoth(t, walkWorkloads) }

func walkWorkloads(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("iam", "identities", "create", "ci", "--parent", "dev", "--issuer", "https://issuer.example.com",
		"--subject", "main")
	ci := p.resolve("dev/ci", "identities")
	b.console(s, "/console/workloads", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.press("ci")
	b.see("ci")
	b.press("Try a token")
	b.fill("A token of the workload's platform", "abc")
	b.read("This token cannot be decoded")
	b.fill("A token of the workload's platform", unsigned("https://issuer.example.com", "branch"))
	b.read("window.hacked") // the browser shows this claim as text before the token is sent to the server
	b.press("Judge")
	b.read("is refused")
	b.read("branch")
	b.unharmed("token")
	b.judge("token")
	b.open(s.BaseURL + "/console/workloads?tab=token")
	b.read("It is decoded in this browser")
	b.fill("A token of the workload's platform", unsigned("https://issuer.example.com", "branch"))
	b.press("Judge")
	b.read("is refused")
	if got := b.address(); strings.Contains(got, "eyJ") {
		t.Errorf("the token is in the address %s", got)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}

	eve := s.eve(t)
	eve.open(s.BaseURL + "/console/workloads")
	eve.read("You hold no role yet")
	eve.refused("GET", "/federation/v1/denials?identity_uid="+url.QueryEscape(ci), "")
}

// TestConsoleEnroll adds one workload for each platform. It checks that the command shown creates the same rules.
func TestConsoleEnroll(t *testing.T) { onBoth(t, walkEnroll) }

func walkEnroll(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/workloads", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("There is no workload in it")
	b.press("Add a workload")
	b.choose("Platform", "github")
	b.fill("Repository", "nonsense")
	b.press("Check")
	b.run("the mistake is at the field",
		chromedp.WaitVisible(`input[name="repo"][aria-invalid] + .wrong`, chromedp.ByQuery))
	b.read("give exactly one of branch, tag, environment")
	b.judge("enroll-wrong")
	for _, tt := range []struct{ platform, typed, command, paste string }{
		{
			"github", "repo=Acme/we.b&branch=main&owner-id=7", "github --repo Acme/we.b --branch main --owner-id 7",
			"id-token: write",
		},
		{"gitlab", "project=acme/sub/web&environment=prod", "gitlab --project acme/sub/web --environment prod", "id_tokens:"},
		{"gitlab", "project=acme/web&tag=v1&project-id=3", "gitlab --project acme/web --tag v1 --project-id 3", "id_tokens:"},
		{
			"buildkite", "org=acme&pipeline=web&branch=feature/a.b",
			"buildkite --org acme --pipeline web --branch feature/a.b", "steps:",
		},
		{
			"kubernetes", "issuer=https://k8s.example.com&namespace=shop&service-account=web",
			"kubernetes --issuer https://k8s.example.com --namespace shop --service-account web", "serviceAccountToken",
		},
		{
			"aws", "aws-account=123456789012&aws-arn-pattern=arn:aws:sts::123456789012:assumed-role/build/.%2B",
			"aws --aws-account 123456789012 --aws-arn-pattern arn:aws:sts::123456789012:assumed-role/build/.+",
			"aws configure export-credentials",
		},
		{
			"other", "issuer=https://jenkins.example.com&subject=job/release",
			"release --issuer https://jenkins.example.com --subject job/release", "HOLDFAST_IDENTITY_TOKEN_FILE",
		},
	} {
		name := fmt.Sprintf("w%x", sha256.Sum256([]byte(tt.typed)))[:8]
		b.open(s.BaseURL + "/console/workloads/new?platform=" + tt.platform + "&" + tt.typed + "&name=" + name)
		b.run("the roles are there, and nothing moves any more",
			chromedp.Poll(`document.querySelectorAll("main select option").length > 12`, nil))
		b.press("Check")
		b.read("becomes " + name)
		for _, command := range b.commands() {
			p.shell("enroll", command)
		}
		b.press("Add the workload")
		b.see(name)
		b.read(tt.paste)
		b.read("Waiting for its first token")
		var made, wanted struct{ ClaimMatch, AwsIdentity map[string]any }
		p.json(&made, "iam", "identities", "get", "dev/"+name)
		p.json(&wanted, append(strings.Fields("iam identities create "+tt.command), "--parent", "dev", "--dry-run")...)
		if len(made.ClaimMatch)+len(made.AwsIdentity) == 0 || !reflect.DeepEqual(made, wanted) {
			t.Errorf("%s: the console creates %v, the command %v", tt.typed, made, wanted)
		}
	}
	b.judge("setup")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/workloads")
	eve.read("workloads")
	eve.lacks("Add a workload")
	eve.open(s.BaseURL + "/console/workloads/new?platform=github")
	eve.read("You may not add a workload here")
	eve.refused("POST", "/iam/v2beta1/identities/"+s.OrganizationUID,
		`{"name": "mine", "claimMatch": {"issuer": "https://eve.example.com", "subject": "eve"}}`)
}

// TestConsoleFirstExchange opens the page that waits for a workload's first token. The first token does not match and
// is refused. After the rule is changed to match the claims of that token, the exchange succeeds.
func TestConsoleFirstExchange(t *testing.T) { onBoth(t, walkFirstExchange) }

func walkFirstExchange(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	var dev struct{ TestIssuer string }
	text, err := os.ReadFile(s.devFile)
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.run("iam", "identities", "create", "ci", "--parent", "dev", "--issuer", dev.TestIssuer,
		"--subject", "repo:acme/web:ref:refs/heads/main")
	ci := p.resolve("dev/ci", "identities")
	file := filepath.Join(t.TempDir(), "token.jwt")
	if err := os.WriteFile(file,
		[]byte(p.run("dev", "token", "github", "--repo", "acme/other", "--ref", "main", "--dev-file", s.devFile)),
		0o600); err != nil {
		t.Fatal(err)
	}
	job := s.person(t)
	exchange := func() error {
		_, _, err := job.try("auth", "login", "--identity", ci, "--identity-token", file)
		return err
	}
	b.console(s, "/console/workloads/"+ci+"?tab=setup", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("Waiting for its first token")
	if exchange() == nil {
		t.Fatal("a token of another repository was exchanged")
	}
	s.deny(t, ci) // this token has no valid signature, so the page does not offer to accept it
	b.read("2 tokens were refused")
	b.judge("setup-refused")
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/workloads/" + ci + "?tab=denials")
	eve.read("repo:acme/other")
	eve.lacks("Expect it instead…", "Accept both…")
	eve.refused("PATCH", "/iam/v2beta1/identities/"+ci,
		`{"claimMatch": {"issuer": "https://eve.example.com", "subject": "eve"}}`)

	b.press("see why")
	b.read("Only one claim differs")
	b.judge("near-miss")
	var fixes int
	b.run("count the fixes",
		chromedp.Evaluate(`[...document.querySelectorAll("main button")]`+
			`.filter(b => b.innerText.includes("Accept both")).length`,
			&fixes))
	if fixes != 1 {
		t.Errorf("%d refused tokens can be accepted, want only the signed one", fixes)
	}
	b.press("Accept both…")
	b.read("are exchanged, too")
	b.judge("near-miss-fix")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Change the rule")
	b.closed()
	p.shell("near miss", command+" --dry-run")
	b.open(s.BaseURL + "/console/workloads/" + ci + "?tab=setup")
	b.read("Waiting for its first token")
	if err := exchange(); err != nil {
		t.Errorf("after the rule was changed: %v", err)
	}
	b.read("a token of it was exchanged") // the page shows the exchange without a reload
	within(t, "the exchange is listed", func() bool {
		b.open(s.BaseURL + "/console/workloads/" + ci + "?tab=exchanges")
		b.see("ci")
		var rows int
		b.run("count the exchanges", chromedp.Poll(`document.querySelector("main .empty, main tbody")`, nil),
			chromedp.Evaluate(`document.querySelectorAll("main tbody tr").length`, &rows))
		return rows == 1
	})
	b.read("repo:acme/other")
	b.judge("exchanges")
	for _, command := range b.commands() {
		p.shell("exchanges", command)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleSignIn connects an identity provider and makes a mistake at every step. It corrects each mistake, tests
// the provider, lets people sign in, maps a group to a role, and removes everything again.
func TestConsoleSignIn(t *testing.T) { onBoth(t, walkSignIn) }

func walkSignIn(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	address := testkit.FreeAddress(t)
	upstream(t, address, testprogram.Path(t, "browser-dex"), "-listen", address, "-client-secret", "the secret of dex",
		"-redirect", redirectAddress(p), "-email", "ann@example.com", "-password", "ann's at dex")
	b.console(s, "/console/sign-in", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("No provider is connected")
	b.press("Connect a provider")
	b.choose("The provider", "okta")
	b.fill("Issuer", "no address")
	b.press("Test the issuer")
	b.run("the error is at the field",
		chromedp.WaitVisible(`input[name="issuer"][aria-invalid] + .wrong`, chromedp.ByQuery))
	b.fill("Issuer", "http://"+testkit.FreeAddress(t))
	b.press("Test the issuer")
	b.run("it does not answer", chromedp.WaitVisible(`//ul[contains(@class, "checks")]//*[contains(@class, "wrong")]`))
	b.judge("connect-issuer")
	b.fill("Issuer", "http://"+address)
	b.press("Test the issuer")
	b.read("its keys can be fetched")
	b.fill("Client ID", "holdfast")
	b.fill("Client secret", "a guess")
	b.press("Test the client")
	b.run("it is refused", chromedp.WaitVisible(`//ul[contains(@class, "checks")]//*[contains(@class, "wrong")]`))
	b.fill("Client secret", "the secret of dex")
	b.press("Test the client")
	b.read("it knows the client")
	b.fill("Name", "dex")
	b.read("Everybody whom the provider lets in gets viewer")
	b.judge("connect-client")
	if got := b.address(); strings.Contains(got, "secret") || !strings.Contains(got, "client=holdfast") {
		t.Errorf("the address is %s, want everything except the secret in it", got)
	}
	b.press("Create it, disabled")
	b.see("dex")
	b.read("people can sign in with it")
	b.read("disabled")
	b.judge("provider-new")
	for _, command := range b.commands() {
		p.shell("provider", command)
	}

	var trial string
	b.run("find the trial", chromedp.AttributeValue(`//a[.="Try a sign-in"]`, "href", &trial, nil))
	ann := newTab(t)
	ann.open(trial)
	ann.signInAtDex()
	ann.see("dex works")
	ann.read("viewer")
	b.press("Enable")
	b.read("all of its people can sign in")
	b.judge("provider-enable")
	b.press("Enable it")
	b.read("in use")

	page := b.address()
	b.press("Group mappings")
	b.read("No group of the provider is mapped")
	b.press("Map a group")
	b.fill("Group at the provider", "eng")
	b.choose("Role", "editor")
	b.press("Check")
	b.read("Everybody who is in eng when they sign in with dex gets editor")
	b.judge("map")
	b.press("Map it")
	b.press("what they get")
	b.read("while they are in eng")
	ann.open(trial)
	ann.signInAtDex()
	ann.see("dex works")
	ann.read("editor") // the server computes this preview of the person's roles

	eve := s.eve(t, "--role", "viewer")
	provider := p.resolve("dev/dex", "identity_providers")
	for path, button := range map[string]string{
		"/console/sign-in": "Connect a provider", "/console/sign-in?tab=rules": "Switch accounts off",
	} {
		eve.open(s.BaseURL + path)
		eve.see("Sign-in")
		eve.run("wait", chromedp.WaitVisible(`//main//table | //main//dl`))
		eve.lacks(button)
	}
	eve.open(page)
	eve.read("people can sign in with it")
	eve.lacks("Disable", "Delete")
	eve.press("Group mappings")
	eve.read("eng")
	eve.lacks("Map a group", "Delete")
	eve.open(s.BaseURL + "/console/sign-in/new?group=" + s.OrganizationUID)
	eve.read("You may not connect a provider here")
	eve.refused("POST", "/iam/v2beta1/identityProviders/"+s.OrganizationUID,
		fmt.Sprintf(`{"name": "mine", "defaultRole": %q, `+
			`"oidc": {"issuer": "https://eve.example.com", "clientId": "x", "pkceEnabled": true}}`,
			resource.OwnerRole))
	eve.refused("POST", "/signin/v1/providers:test",
		fmt.Sprintf(`{"parent": %q, "identityProvider": {"name": "mine", "defaultRole": %q, `+
			`"oidc": {"issuer": "https://eve.example.com", "clientId": "x", "pkceEnabled": true}}}`,
			s.OrganizationUID, resource.OwnerRole))
	eve.refused("PATCH", "/iam/v2beta1/identityProviders/"+provider, `{"disabled": true}`)
	eve.refused("DELETE", "/iam/v2beta1/identityProviders/"+provider, "")
	eve.refused("POST", "/iam/v2beta1/externalGroupRoleMappings/"+provider,
		fmt.Sprintf(`{"externalGroupId": "all", "roleUid": %q}`, resource.OwnerRole))
	eve.refused("PATCH", "/signin/v1/rules/"+s.OrganizationUID, `{"localAccounts": false}`)

	b.open(s.BaseURL + "/console/sign-in?tab=rules")
	b.press("Switch accounts off")
	b.read("People without a provider are locked out")
	b.press("Switch them off")
	b.run("it is refused, because no owner has come through dex",
		chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.judge("rules-refused")

	b.open(page)
	b.press("Delete")
	b.press("Delete it")
	b.run("it is refused, because it has a mapping", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.press("Keep it")
	b.press("Group mappings")
	b.press("Delete the mapping of eng")
	b.read("lose it at their next sign-in")
	b.press("Delete the mapping")
	b.read("No group of the provider is mapped")
	b.press("Provider")
	b.press("Delete")
	b.press("Delete it")
	b.see("Sign-in")
	b.read("No provider is connected")
	for _, complaint := range said.take() {
		// The browser logs the requests that the server refuses.
		if !strings.Contains(complaint, "status of 400") && !strings.Contains(complaint, "status of 412") {
			t.Error(complaint)
		}
	}
}

// choose selects an option of the field that has this label.
func (b *tab) choose(label, option string) {
	b.t.Helper()
	var found bool
	b.run(fmt.Sprintf("choose %q", option), chromedp.Poll(fmt.Sprintf(`(e => {
		const option = [...e?.options ?? []].find(o => o.value === %[2]q || o.text === %[2]q);
		if (!option) return false;
		e.value = option.value;
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return true;
	})([...document.querySelectorAll("label")].find(l => l.innerText.trim() === %[1]q)?.control)`, label, option), &found))
}

// TestConsoleAccount checks that the account page shows the person's identity and can end the session.
func TestConsoleAccount(t *testing.T) { onBoth(t, walkAccount) }

func walkAccount(t *testing.T, s *site) {
	b := s.eve(t, "--role", "viewer")
	said := b.complaints()
	b.open(s.BaseURL + "/console/account") // leads to the only account page
	b.see("Your account")
	b.read("Eve Example")
	b.read("viewer on dev")
	b.press("Open the console")
	b.see("Home")
	b.press("Keys and preferences")
	b.judge("preferences")
	b.choose("Colors", "dark")
	b.choose("Times", "exact")
	b.open(s.BaseURL + "/console/") // the setting is still there after a reload
	b.read(time.Now().Format("Jan 2006"))
	var back string
	b.run("look at the color", chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &back))
	if back != "rgb(12, 18, 17)" {
		t.Errorf("in the dark scheme the background is %s", back)
	}
	b.press("Keys and preferences")
	b.choose("Colors", "as the system")
	b.choose("Times", "relative")
	b.keys(kb.Escape)
	var operators int
	b.run("look for the operator's view",
		chromedp.Evaluate(`document.querySelectorAll('nav a[href="/console/operator"]').length`, &operators))
	if operators != 0 {
		t.Error("a person who is not an operator sees the link")
	}
	b.open(s.BaseURL + "/console/operator")
	b.read("You are no operator of this installation")
	b.judge("operator-eve")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
	b.refused("GET", "/operator/v1/installation", "")
	b.open(s.BaseURL + "/console/repos")
	b.see("Repos")
	b.run("open something", chromedp.Evaluate(`sessionStorage.setItem("holdfast-recent", "[]")`, nil))
	b.press("Account")
	b.press("Sign out")
	b.see("You are signed out")
	var kept int
	b.run("look for what is kept", chromedp.Evaluate(`sessionStorage.length`, &kept))
	if kept != 0 {
		t.Errorf("after the sign-out, the tab keeps %d items of the console", kept)
	}
	b.open(s.BaseURL + "/console/")
	b.see("Sign in")
}

// TestConsoleEvents creates a subscription, shows its failed deliveries, sends them again, and deletes the
// subscription.
func TestConsoleEvents(t *testing.T) { onBoth(t, walkEvents) }

func walkEvents(t *testing.T, s *site) {
	var well, testsWell atomic.Bool // whether the sink accepts all events, or test events
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isTest := strings.HasSuffix(r.Header.Get("Ce-Type"), "subscription.tested.v1")
		if !well.Load() && !(isTest && testsWell.Load()) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("out of <b>order</b>, key secret")) // the test reads the log
		}
	}))
	t.Cleanup(sink.Close)
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile)
	b.console(s, "/console/events", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("No subscription that you may see")
	b.press("Subscribe")
	b.fill("Events of the group", "dev/platform")
	b.fill("Address to post them to", sink.URL+"?key=secret")
	b.press("Check")
	b.read("and of everything below it will be sent there")
	b.judge("subscribe")
	b.press("Create the subscription")
	b.read(sink.URL)
	b.press("Test")
	b.read("now and once")
	b.press("Send it")
	b.read("the sink answered 503")
	b.judge("test-subscription")
	testsWell.Store(true) // other events keep failing
	b.press("Send another")
	b.read("The event was accepted")
	testsWell.Store(false)
	b.press("Close")
	subscription := p.run("events", "subscriptions", "list", "-o", "id")
	b.deliveryLog(s, subscription, &well)
	var log []struct{ EventID, Type string }
	p.json(&log, "events", "deliveries", "log", subscription)
	test := slices.IndexFunc(log, func(a struct{ EventID, Type string }) bool {
		return strings.HasSuffix(a.Type, "subscription.tested.v1")
	})
	_, complaint, err := p.try("events", "deliveries", "resend", subscription, log[test].EventID)
	if err == nil || !strings.Contains(complaint, "the event was a test") {
		t.Errorf("a test was sent again: %v %s", err, complaint)
	}

	p.giveUp(3)
	b.open(s.BaseURL + "/console/events?tab=deliveries&subscription=" + subscription)
	b.read("3 failed deliveries")
	b.run("open one", chromedp.Click(`(//details/summary)[1]`))
	b.read("createTime") // a field in the body of the event
	b.unharmed("deliveries")
	b.judge("deliveries")
	for _, command := range b.commands() {
		p.shell("deliveries", command)
	}
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/events?tab=deliveries&subscription=" + subscription)
	eve.read("3 failed deliveries")
	eve.lacks("Replay", "Replay all")
	eve.refused("POST", "/deliveries/v1/replays/"+subscription, "{}")
	eve.press("Subscriptions")
	eve.read("?redacted")
	eve.lacks("Subscribe", "Delete", "Test")
	eve.refused("POST", "/deliveries/v1/tests/"+subscription, "{}")
	eve.refused("POST", "/events/v2beta1/subscriptions/"+s.OrganizationUID, `{"sink": "https://hooks.invalid"}`)
	eve.refused("DELETE", "/events/v2beta1/subscriptions/"+subscription, "")

	well.Store(true)
	b.press("Replay")
	b.press("Send it again")
	b.closed()
	b.reload("2 failed deliveries")
	b.press("Replay all")
	b.press("Send them again")
	b.closed()
	b.reload("No delivery that you may see was given up")
	b.press("Subscriptions")
	b.press("Delete")
	b.read("gets no more events")
	b.press("Delete the subscription")
	b.read("No subscription that you may see")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// deliveryLog checks that a failing subscription is shown as failing, and that its log has each attempt with the
// response, from where an event can be sent again.
func (b *tab) deliveryLog(s *site, subscription string, well *atomic.Bool) {
	b.t.Helper()
	b.open(s.BaseURL + "/console/events")
	b.reload("failing since") // a delivery fails some seconds after the event
	b.read("the sink answered 503")
	b.press("Delivery log")
	b.read("It has been failing since")
	b.read("out of <b>order</b>")
	b.judge("delivery-log")
	b.open(s.BaseURL + "/console/")
	b.read("Failing subscriptions")
	b.open(s.BaseURL + "/console/events?tab=log&subscription=" + subscription)
	b.read("It has been failing since")
	b.run("a test cannot be sent again", chromedp.WaitNotPresent(`//tr[contains(., "subscription.tested")]//button`))
	b.run("send one again", chromedp.Click(`(//tbody//button[normalize-space()="Resend"])[1]`))
	b.read("It keeps its id")
	b.press("Send it")
	b.read("the sink answered 503")
	well.Store(true)
	b.press("Send another")
	b.read("The event was accepted")
	b.press("Close")
	b.read("200 accepted")
	b.run("the subscription works again", chromedp.Poll(fmt.Sprintf(`fetch("/events/v2beta1/subscriptions/%s",
		{headers: {"Holdfast-Console": "1"}}).then(r => r.json()).then(s => !s.failing)`, subscription), nil,
		chromedp.WithPollingInterval(time.Second)))
	b.reload("200 accepted")
	well.Store(false)
}

// TestConsoleAsksAgain checks that a sensitive action requires a sign-in within the last ten minutes, and that the
// text entered before the new sign-in is not lost.
func TestConsoleAsksAgain(t *testing.T) { onBoth(t, walkAsksAgain) }

func walkAsksAgain(t *testing.T, s *site) {
	b := newTab(t)
	b.console(s, "/console/events", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	subscribe := func() {
		b.press("Subscribe")
		b.fill("Events of the group", "dev")
		b.fill("Address to post them to", "https://hooks.invalid/again")
		b.press("Check")
		b.read("will be sent there")
		b.press("Create the subscription")
	}
	b.forgetFresh(s)
	subscribe()
	b.read("what you have entered here stays")
	b.judge("again")
	for _, complaint := range said.take() {
		if !strings.Contains(complaint, "400") { // the browser logs the refused request
			t.Error(complaint)
		}
	}
	var address, typed string
	b.run("read where it leads", chromedp.Evaluate(`document.querySelector(".problem a").href`, &address),
		chromedp.Evaluate(`document.querySelector("dialog input[name=sink]").value`, &typed))
	if typed != "https://hooks.invalid/again" {
		t.Errorf("the entered text is now %q", typed)
	}
	b.open(address)
	b.read("again to go on")
	b.fill("Password", s.OwnerPassword)
	b.press("Sign in")
	b.see("You have signed in again")
	b.judge("confirmed")
	b.open(s.BaseURL + "/console/events")
	subscribe()
	b.read("1 subscription")
}

// TestConsoleTwoWriters: if two people edit the same resource, then the second person sees the changes of the first
// person before overwriting them.
func TestConsoleTwoWriters(t *testing.T) { onBoth(t, walkTwoWriters) }

func walkTwoWriters(t *testing.T, s *site) {
	p, b, eve := s.owner(t), newTab(t), s.eve(t, "--role", "owner")
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", "as it was")
	address := "/console/groups/" + p.resolve("dev/platform", "groups")
	b.console(s, address, s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	eve.open(s.BaseURL + address)
	for _, one := range []*tab{b, eve} {
		one.read("as it was")
		one.press("Edit")
	}
	eve.fill("Description", "of eve "+hostile)
	eve.press("Save")
	eve.read("of eve")
	b.fill("Description", "of the owner")
	b.press("Save")
	b.read("Your changes were not saved")
	b.read("Eve Example")
	b.read("of eve")
	b.unharmed("overtaken")
	b.judge("overtaken")
	if got := p.run("iam", "groups", "get", "dev/platform", "-o", "json"); !strings.Contains(got, "of eve") {
		t.Errorf("the group is %s", got)
	}
	b.press("Overwrite with mine")
	within(t, "it is saved", func() bool {
		return strings.Contains(p.run("iam", "groups", "get", "dev/platform", "-o", "json"), "of the owner")
	})
	for _, complaint := range said.take() {
		if !strings.Contains(complaint, "409") { // the browser logs the refused request
			t.Error(complaint)
		}
	}
	mallory := s.mallory(t)
	mallory.open(s.BaseURL + address)
	mallory.read("of the owner")
	mallory.lacks("Edit")
	mallory.refused("PATCH", strings.Replace(address, "/console", "/iam/v2beta1", 1), `{"description": "mine"}`)
}

// TestConsoleRequests requests a role for a limited time. The request is approved, and then the person gives the role
// back before it expires.
func TestConsoleRequests(t *testing.T) { onBoth(t, walkRequests) }

func walkRequests(t *testing.T, s *site) {
	p, b, eve := s.owner(t), newTab(t), s.eve(t, "--role", "viewer")
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	b.console(s, "/console/access?show=requests", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	b.read("Nobody has asked for a role")
	b.judge("requests-none")
	eve.open(s.BaseURL + "/console/access?show=requests")
	eve.press("Ask for a role")
	eve.read("No role can be asked for")
	p.run("access", "rules", "create", "editor", "--on", "dev/platform", "--max", "8h", "--reason-required")
	eve.run("reload", chromedp.Reload())
	eve.press("Ask for a role")
	eve.read("At most 8 hours")
	eve.fill("For how many hours", "2")
	eve.fill("Why", "incident 7 "+hostile)
	eve.judge("ask")
	eve.press("Ask")
	eve.read("pending")
	eve.lacks("Approve", "Deny")
	var asked []struct{ UID string }
	p.json(&asked, "access", "requests", "list")
	eve.refused("POST", "/access/v1/approvals/"+asked[0].UID, "{}")
	eve.refused("POST", "/access/v1/denials/"+asked[0].UID, "{}")

	b.open(s.BaseURL + "/console/")
	b.read("Requests to approve")
	b.read("incident 7")
	b.run("the navigation counts it", chromedp.WaitVisible(`//nav//a[normalize-space()="Access1 request to decide"]`))
	b.judge("home-requests")
	b.press("All requests")
	b.read("for 2 hours")
	for _, command := range b.commands() {
		p.shell("requests", command)
	}
	b.press("Approve")
	b.read("from the last approval on")
	b.judge("approve")
	b.collectMessages()
	b.run("approve", chromedp.Click(`//dialog//button[normalize-space()="Approve"]`))
	b.tells("Approved")
	b.read("granted")
	b.unharmed("requests")
	b.judge("requests")
	eve.reload("granted")
	eve.press("Hand back")
	eve.run("hand back", chromedp.Click(`//dialog//button[normalize-space()="Hand back"]`))
	eve.read("handed back")

	b.open(s.BaseURL + "/console/groups/" + p.resolve("dev/platform", "groups") + "?tab=people")
	b.press("Grant a role")
	b.fill("Who", "Eve Example")
	b.fill("Why", "until the audit")
	b.run("for a day", chromedp.SetValue(`select[name="for"]`, "24", chromedp.ByQuery))
	b.run("tell",
		chromedp.Evaluate(`document.querySelector('select[name="for"]').dispatchEvent(new Event("change", {bubbles: true}))`,
			nil))
	b.press("Check")
	b.read("until")
	b.judge("grant-for-a-time")
	b.run("grant", chromedp.Click(`//dialog//button[normalize-space()="Grant"]`))
	b.read("until the audit")
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// TestConsoleLive checks that the live view shows changes by another person, and only to callers who may list them.
func TestConsoleLive(t *testing.T) { onBoth(t, walkLive) }

func walkLive(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	b.console(s, "/console/audit?type=iam.group", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	eve := s.eve(t)
	b.press("Watch live")
	b.read("Live since")
	b.read("Nothing has happened since")
	eve.open(s.BaseURL + "/console/events?tab=live")
	eve.read("Live since")
	p.run("iam", "groups", "create", "platform", "--parent", "dev", "--description", hostile)
	live := func(tab *tab) (n int) {
		tab.run("count", chromedp.Evaluate(`document.querySelectorAll("section.live li").length`, &n))
		return n
	}
	within(t, "the change is shown", func() bool { return live(b) == 1 })
	b.run("open it", chromedp.Click(`(//section[@aria-label="Live"]//summary)[1]`))
	b.read("description")
	b.unharmed("live")
	b.judge("live")
	b.run("reload", chromedp.Reload())
	b.read("Live since")
	if !strings.Contains(b.address(), "live=1") {
		t.Error("the address does not contain live=1")
	}
	p.run("iam", "groups", "create", "edge", "--parent", "dev/platform")
	within(t, "the next change is shown", func() bool { return live(b) == 1 })
	b.press("Events")
	b.press("Live")
	b.read("Live since")
	b.judge("events-live")
	p.run("iam", "groups", "create", "core", "--parent", "dev/platform")
	within(t, "the change is shown among events", func() bool { return live(b) == 1 })
	if n := live(eve); n != 0 {
		t.Errorf("a person who may not list changes sees %d changes", n)
	}
	for _, complaint := range said.take() {
		t.Error(complaint)
	}
}

// reload reloads the page until it contains the text. It is for pages that do not update by themselves.
func (b *tab) reload(text string) {
	b.t.Helper()
	within(b.t, "the page has "+text, func() bool {
		var there bool
		b.run("reload", chromedp.Reload(), chromedp.WaitVisible(`main h1`, chromedp.ByQuery),
			chromedp.Sleep(200*time.Millisecond),
			chromedp.Evaluate(fmt.Sprintf(`document.body.innerText.includes(%q)`, text), &there))
		return there
	})
}

// giveUp stores n failed deliveries of the event for the group dev/platform, as if the server had tried them for a
// day.
func (p *person) giveUp(n int) {
	p.t.Helper()
	group := p.resolve("dev/platform", "groups")
	var log []struct {
		ID, Subject, Group string
		Time               time.Time
	}
	p.json(&log, "audit", "--subject", group)
	db := p.site.openStore(p.t)
	sub := resource.UID(p.run("events", "subscriptions", "list", "-o", "id"))
	var deliveries []resource.Delivery
	for i := range n {
		e := log[0]
		event := resource.Event{
			Seq: int64(i + 1), ID: e.ID, Type: resource.GroupCreated, Subject: resource.UID(e.Subject),
			Group: resource.UID(e.Group), Time: e.Time, Before: []byte{},
		}
		event.After = fmt.Appendf(nil, `{"uid": %q, "name": "platform"}`, group)
		deliveries = append(deliveries, resource.Delivery{
			UID: sub.NewChild(), Event: event, Attempts: 3, Error: "the sink answered 503 " + hostile,
			CreateTime: time.Now(), UpdateTime: time.Now(),
		})
	}
	if err := db.GiveUp(p.t.Context(), sub, 0, deliveries); err != nil {
		p.t.Fatal(err)
	}
}

// find opens the search dialog and types the text.
func (b *tab) find(text string) {
	b.t.Helper()
	b.run("open the search", chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)),
		chromedp.WaitVisible(`dialog [role="combobox"]:focus`, chromedp.ByQuery))
	if text != "" {
		b.keys(text)
	}
}

// option waits until the search dialog lists a result that contains the text.
func (b *tab) option(text string) {
	b.t.Helper()
	b.run(fmt.Sprintf("see %q in the list", text),
		chromedp.WaitVisible(fmt.Sprintf(`//*[@role="option"][contains(., %q)]`, text)))
}

// TestConsoleFeeds checks that a feed can be fetched before its interval has passed, but not by a viewer.
func TestConsoleFeeds(t *testing.T) { onBoth(t, walkFeeds) }

func walkFeeds(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("advisories", "feeds", "create", "broken", "--parent", "dev", "--address", "https://feeds.invalid/osv.zip",
		"--interval", "1d")
	last := func() string {
		return p.run("advisories", "feeds", "list", "--parent", "dev", "--jq", ".[0].last.time")
	}
	within(t, "the feed is read", func() bool { return last() != "null" })
	before := last()
	b.console(s, "/console/vulnerabilities?tab=feeds", s.OwnerEmail, s.OwnerPassword)
	b.press("Read now: broken")
	b.read("within seconds")
	b.judge("feed-now")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Read it")
	b.closed()
	within(t, "the feed is read again", func() bool { return last() != before })
	p.shell("feed", command)
	eve := s.eve(t, "--role", "viewer")
	eve.open(s.BaseURL + "/console/vulnerabilities?tab=feeds")
	eve.read("broken")
	eve.lacks("Read now…")
	feed := p.run("advisories", "feeds", "list", "--parent", "dev", "-o", "id")
	eve.refused("POST", "/advisories/v1/feedRuns/"+feed, `{}`)
}

// TestConsoleLargeTexts checks that the console can show the largest texts that other people can store. The API
// refuses larger texts, and texts with NUL characters, which a database cannot store.
func TestConsoleLargeTexts(t *testing.T) { onBoth(t, walkLargeTexts) }

func walkLargeTexts(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	long := strings.Repeat("W", 300_000) + " 🏴‍☠️ \u202eabc " + hostile
	s.pushWith(t, "dev/platform/web", "v1", "1.2.0", map[string]any{
		"config": map[string]any{
			"Env": []string{"NUL=\x00", "LONG=" + long}, "Labels": map[string]string{"emoji": "🏴‍☠️ " + hostile},
		},
		"history": []any{map[string]any{"created_by": "RUN \x00 " + long}},
	})
	repo := p.resolve("dev/platform/web", "repos")
	readme := strings.Repeat("| 🏴‍☠️ ", 5_000) + "\n\nthe end of it\n\n" + strings.Repeat("W", 100_000)
	for name, text := range map[string]string{"10 MB": strings.Repeat("x", 10<<20), "NUL": "a\x00b"} {
		if status := s.ask(t, http.MethodPatch, "/registry/v2beta1/repos/"+repo+"/readme",
			map[string]string{"content": text}); status/100 != 4 {
			t.Errorf("a readme of %s: status %d", name, status)
		}
	}
	if status := s.ask(t, http.MethodPatch, "/registry/v2beta1/repos/"+repo+"/readme",
		map[string]string{"content": readme}); status != http.StatusOK {
		t.Fatalf("a readme of %d bytes: status %d", len(readme), status)
	}
	p.advise("left", strings.Repeat(hostile+" 🏴‍☠️ ", 2_000)+strings.Repeat("W", 50_000),
		"https://example.com/left")
	b.console(s, "/console/", s.OwnerEmail, s.OwnerPassword)
	said := b.complaints()
	for _, v := range []struct{ name, path, text string }{
		{"large-image", "/console/repos/" + repo + "/images/v1?tab=platforms", "emoji="},
		{"large-readme", "/console/repos/" + repo + "?tab=readme", "the end of it"},
		{"large-advisory", "/console/advisories/GHSA-left", "window.hacked"},
		{"large-audit", "/console/audit", "iam.group.created"},
	} {
		b.open(s.BaseURL + v.path)
		b.read(v.text)
		b.unharmed(v.name)
		for _, width := range []int64{1280, 390} {
			b.run("change the width", chromedp.EmulateViewport(width, 800))
			b.fits(v.name, width)
		}
		for _, complaint := range said.take() {
			t.Errorf("%s: %s", v.name, complaint)
		}
	}
}

// TestConsoleWeeklyReport checks that a person turns the weekly report of a group on and off, that a report is sent,
// that the console shows the error of a server without a mail server, and that people who may not see findings do not
// see the switch.
func TestConsoleWeeklyReport(t *testing.T) { onBoth(t, walkWeeklyReport) }

func walkWeeklyReport(t *testing.T, s *site) {
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	group := p.resolve("dev/platform", "groups")
	b.console(s, "/console/vulnerabilities?group="+group, s.OwnerEmail, s.OwnerPassword)
	b.press("Get it by e-mail…")
	b.read("now and then every week")
	b.judge("weekly-report")
	b.press("Send it every week")
	b.run("the server sends no mail", chromedp.WaitVisible(`dialog .problem`, chromedp.ByQuery))
	b.read("this server sends no e-mail")
	b.press("Cancel")

	eve := s.eve(t, "--role", "registry.pull")
	eve.open(s.BaseURL + "/console/vulnerabilities?group=" + group)
	eve.read("Vulnerabilities")
	eve.lacks("Get it by e-mail…")
	eve.refused("POST", "/findings/v1/groups/"+group+"/report_subscription", `{}`)

	cfg := server.Config{SMTPFrom: "holdfast@example.com", SMTPTLS: mail.NoTLS}
	if strings.Contains(s.database, "://") {
		cfg.Database = storetest.Postgres(t)
	}
	box := mailtest.Start(t, mailtest.Config{})
	cfg.SMTPAddress = box.Address
	mailing := newSiteWith(t, cfg)
	mailing.unjudged = s.unjudged
	mailing.getsReports(t, box)
}

// getsReports turns the weekly report of a group on and off, on a server that sends mail.
func (s *site) getsReports(t *testing.T, box *mailtest.Server) {
	t.Helper()
	p, b := s.owner(t), newTab(t)
	p.run("iam", "groups", "create", "platform", "--parent", "dev")
	group := p.resolve("dev/platform", "groups")
	b.console(s, "/console/vulnerabilities?group="+group, s.OwnerEmail, s.OwnerPassword)
	b.press("Get it by e-mail…")
	var command string
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Send it every week")
	b.closed()
	b.read("You get the report about dev/platform by e-mail every week, next")
	b.judge("weekly-report-on")
	if got := box.Await(t, 1)[0]; len(got.To) != 1 || got.To[0] != s.OwnerEmail {
		t.Errorf("a report is sent to %v", got.To)
	}
	p.shell("subscribe", command)
	b.press("Stop the report…")
	b.run("read the command", chromedp.Text(`dialog pre`, &command, chromedp.ByQuery))
	b.press("Stop it")
	b.closed()
	b.read("Get it by e-mail…")
	if left := p.run("findings", "report", "subscriptions", "-o", "id"); left != "" {
		t.Errorf("the subscription is left: %s", left)
	}
	p.run("findings", "report", "subscribe", "dev/platform")
	p.shell("unsubscribe", command)
}
