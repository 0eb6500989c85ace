package e2e_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"mime/quotedprintable"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/mail/mailtest"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// mailing returns settings for a server that sends mail through s.
func mailing(s *mailtest.Server) server.Config {
	return server.Config{
		SMTPAddress: s.Address, SMTPFrom: "Holdfast <holdfast@example.com>", SMTPTLS: mail.NoTLS,
		SMTPUser: "holdfast", SMTPPassword: "hush-hush",
	}
}

// textOf returns the decoded text of a message.
func textOf(t *testing.T, m mailtest.Message) string {
	t.Helper()
	_, body, _ := strings.Cut(m.Data, "\r\n\r\n")
	text, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// makes sends a POST request as the owner and decodes the response.
func (w *world) makes(t *testing.T, path, body string, into any) {
	t.Helper()
	got := w.send(t, w.Token, http.MethodPost, path, body)
	if got.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, got.status, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), into); err != nil {
		t.Fatal(err)
	}
}

// TestMail checks that the server sends an invite or a link only to the address that its creator names. A person must
// get a message about a sign-in from a new device, and no message about a device that they have used before. The log
// must not contain a link.
func TestMail(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, database string) {
		box := mailtest.Start(t, mailtest.Config{User: "holdfast", Password: "hush-hush"})
		var log syncBuffer
		cfg := mailing(box)
		cfg.LogLevel, cfg.Stderr = slog.LevelDebug, &log
		w := serve(t, database, cfg, nil)
		org, secrets := string(w.Organization), []string{"hush-hush"}
		expect := func(n int, to, subject, secret string) {
			t.Helper()
			got := box.Await(t, n)[n-1]
			if text := textOf(t, got); len(got.To) != 1 || got.To[0] != to || !strings.Contains(text, secret) ||
				!strings.Contains(got.Data, "Subject: "+subject+"\r\n") {
				t.Errorf("to %v: %s\n%s\nwant %s, %s and %s", got.To, got.Data, text, to, subject, secret)
			}
			secrets = append(secrets, secret)
		}
		role := roleUID(t, w, "viewer")
		var invite struct{ UID, Code string }
		// An invite without an address is not sent.
		w.makes(t, "/iam/v2beta1/groupInvites/"+org, `{"roleUid":"`+role+`","ttl":"3600s"}`, &invite)
		// A dry run sends nothing.
		w.makes(t, "/iam/v2beta1/groupInvites/"+org+"?validate_only=true", inviteFor(role, "dry@example.test"), &invite)
		w.makes(t, "/iam/v2beta1/groupInvites/"+org, inviteFor(role, "ben@example.test"), &invite)
		expect(1, "ben@example.test", "You are invited to dev", w.AuthURL+"/join?code="+url.QueryEscape(invite.Code))
		w.send(t, w.Token, http.MethodPatch, "/iam/v2beta1/groupInvites/"+invite.UID, `{"email":"eve@example.test"}`)

		stranger := w.mint(t, resource.NewRoot(), token.Claims{})
		if got := w.send(t, stranger, http.MethodPost, "/iam/v2beta1/groupInvites/"+org,
			inviteFor(role, "x@example.test")); got.status != http.StatusForbidden {
			t.Errorf("a stranger created an invite: status %d %s", got.status, got.body)
		}

		var made struct {
			Account struct{ UID string }
			Link    struct{ URL string }
		}
		w.makes(t, "/signin/v1/accounts/"+org, `{"email":"Ann@example.test","name":"Ann"}`, &made)
		expect(2, "ann@example.test", "Your account at dev", made.Link.URL)
		var link struct{ URL string }
		w.makes(t, "/signin/v1/accountLinks/"+made.Account.UID, `{}`, &link)
		expect(3, "ann@example.test", "Your account at dev", link.URL)

		b := newBrowser(t, w)
		b.signIn(t)
		expect(4, strings.ToLower(w.OwnerEmail), "A new sign-in to your account", "/account")
		b.signIn(t) // signs in again with the same browser, so no message is sent
		newBrowser(t, w).signIn(t)
		expect(5, strings.ToLower(w.OwnerEmail), "A new sign-in to your account", "/account")
		secrets = secrets[:len(secrets)-2]

		procUntil(t, "the queue is empty", func() bool {
			m := w.metrics(t)
			waiting, known := m["holdfast_mails_waiting"]
			return known && waiting == 0 && m[`holdfast_mails_total{outcome="ok"}`] == 5
		})
		w.stop()
		if got := box.Messages(); len(got) != 5 {
			t.Errorf("%d messages, want 5", len(got))
		}
		for _, secret := range secrets {
			if _, code, ok := strings.Cut(secret, "code="); ok {
				secret = code
			}
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log contains %s", secret)
			}
		}
	})
}

func inviteFor(role, email string) string {
	return `{"roleUid":"` + role + `","ttl":"3600s","email":"` + email + `","singleUse":true}`
}

func roleUID(t *testing.T, w *world, name string) string {
	t.Helper()
	var found struct{ Roles []struct{ UID string } }
	got := w.send(t, w.Token, http.MethodGet, "/iam/v2beta1/roles?name="+name, "")
	if err := json.Unmarshal([]byte(got.body), &found); err != nil || len(found.Roles) == 0 {
		t.Fatalf("%v in %s", err, got.body)
	}
	return found.Roles[0].UID
}

// TestMailWaits: if the mail server is down when a message is accepted, then the message is sent after a restart of
// the server, when the mail server can be reached.
func TestMailWaits(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, database string) {
		box := mailtest.Start(t, mailtest.Config{User: "holdfast", Password: "hush-hush"})
		cfg := mailing(box)
		cfg.SMTPAddress = "127.0.0.1:1"
		w := serve(t, database, cfg, nil)
		var invite struct{ UID, Code string }
		w.makes(t, "/iam/v2beta1/groupInvites/"+string(w.Organization),
			inviteFor(roleUID(t, w, "viewer"), "ben@example.test"), &invite)
		procUntil(t, "it was tried", func() bool { return w.metrics(t)[`holdfast_mails_total{outcome="failed"}`] > 0 })
		w.stop()
		next := w.config
		next.SMTPAddress = box.Address
		next.Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
		w.run(t, next)
		if got := textOf(t, box.Await(t, 1)[0]); !strings.Contains(got, url.QueryEscape(invite.Code)) {
			t.Errorf("the message is %s", got)
		}
	})
}

// TestMailFailingSubscription checks that the owner of an organization, who signs in with a local account, gets a
// message about a subscription whose sink has not accepted events for an hour.
func TestMailFailingSubscription(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, database string) {
		box := mailtest.Start(t, mailtest.Config{User: "holdfast", Password: "hush-hush"})
		w := serve(t, database, mailing(box), nil)
		sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "broken", http.StatusInternalServerError)
		}))
		defer sink.Close()
		org := string(w.Organization)
		var sub struct{ UID string }
		w.makes(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+sink.URL+`"}`, &sub)
		procUntil(t, "the subscription is failing", func() bool {
			got := w.send(t, w.Token, http.MethodGet, "/events/v2beta1/subscriptions/"+sub.UID, "")
			return strings.Contains(got.body, `"sinceTime"`)
		})
		procUntil(t, "operators see that", func() bool {
			got := w.send(t, w.Token, http.MethodGet, "/operator/v1/installation", "")
			return strings.Contains(got.body, `"subscriptionsFailing":1,`)
		})
		w.stop()
		next := w.config
		next.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		w.run(t, next)
		got := box.Await(t, 1)[0]
		text := textOf(t, got)
		if len(got.To) != 1 || got.To[0] != strings.ToLower(w.OwnerEmail) ||
			!strings.Contains(text, "has not accepted any since") || !strings.Contains(text, url.QueryEscape(sub.UID)) {
			t.Errorf("to %v: %s", got.To, text)
		}
	})
}

// TestMailReport checks that a person who subscribes to a report gets it, and how the subscription ends.
func TestMailReport(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, database string) {
		box := mailtest.Start(t, mailtest.Config{User: "holdfast", Password: "hush-hush"})
		w := serve(t, database, mailing(box), nil)
		path := "/findings/v1/groups/" + string(w.Organization) + "/report_subscription"
		stranger := w.mint(t, resource.NewRoot(), token.Claims{})
		if got := w.send(t, stranger, http.MethodPost, path, `{}`); got.status != http.StatusForbidden {
			t.Errorf("a stranger subscribes: %d %s", got.status, got.body)
		}
		var found struct{ People []struct{ UID string } }
		people := w.send(t, w.Token, http.MethodGet, "/access/v1/people?page_size=10", "")
		if err := json.Unmarshal([]byte(people.body), &found); err != nil || len(found.People) != 1 {
			t.Fatalf("%v in %s", err, people.body)
		}
		w.Token = w.mint(t, resource.UID(found.People[0].UID), token.Claims{})
		var dry, made struct{ GroupUID, Group, NextTime string }
		w.makes(t, path, `{"validateOnly":true}`, &dry)
		w.makes(t, path, `{}`, &made)
		if made.GroupUID != string(w.Organization) || made.Group != "dev" || made.NextTime == "" {
			t.Errorf("the subscription is %+v", made)
		}
		got := box.Await(t, 1)[0]
		text := textOf(t, got)
		if len(got.To) != 1 || got.To[0] != strings.ToLower(w.OwnerEmail) ||
			!strings.Contains(got.Data, "Subject: Findings of dev: nothing is known") ||
			!strings.Contains(text, "0 images with tags") || !strings.Contains(text, "findings report unsubscribe") {
			t.Errorf("to %v: %s\n%s", got.To, got.Data, text)
		}
		if got := w.send(t, stranger, http.MethodGet, "/findings/v1/report_subscriptions", ""); got.status != http.StatusOK ||
			strings.Contains(got.body, string(w.Organization)) {
			t.Errorf("a stranger lists subscriptions: %d %s", got.status, got.body)
		}
		if got := w.send(t, stranger, http.MethodDelete, path, ""); got.status != http.StatusNotFound {
			t.Errorf("a stranger ends the subscription: %d %s", got.status, got.body)
		}
		if got := w.send(t, w.Token, http.MethodDelete, path, ""); got.status != http.StatusOK {
			t.Errorf("the person ends the subscription: %d %s", got.status, got.body)
		}
		if got := w.send(t, w.Token, http.MethodDelete, path, ""); got.status != http.StatusNotFound {
			t.Errorf("the person ends it again: %d %s", got.status, got.body)
		}
	})
}

// TestMailDoctor checks that the command doctor reports an unusable mail server as a warning.
func TestMailDoctor(t *testing.T) {
	box := mailtest.Start(t, mailtest.Config{User: "holdfast", Password: "hush-hush"})
	w := serve(t, storetest.SQLite(t), mailing(box), nil)
	address, err := url.Parse(w.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.config
	cfg.Listen = address.Host
	if sick, err := examine(t, cfg); err != nil {
		t.Errorf("a usable mail server: the report is %v, %v", sick, err)
	}
	for name, change := range map[string]func(*server.Config){
		"a wrong password": func(c *server.Config) { c.SMTPPassword = "wrong" },
		"nobody there":     func(c *server.Config) { c.SMTPAddress = "127.0.0.1:1" },
	} {
		bad := cfg
		change(&bad)
		if sick, _ := examine(t, bad); len(sick) != 1 || sick["mail"] != "warning" {
			t.Errorf("%s: %v", name, sick)
		}
	}
	if n := len(box.Messages()); n != 0 {
		t.Errorf("doctor sent %d messages, want none", n)
	}
}

// A mailBrowser is a client for the sign-in pages that stores cookies.
type mailBrowser struct {
	*http.Client
	w *world
}

func newBrowser(t *testing.T, w *world) mailBrowser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return mailBrowser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, w}
}

// signIn signs the owner in, even if the browser is already signed in.
func (b mailBrowser) signIn(t *testing.T) {
	t.Helper()
	do := func(method, path string, form url.Values) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, b.w.BaseURL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := b.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the redirect is needed
		return resp
	}
	_, flow, _ := strings.Cut(do(http.MethodGet, "/oauth?client_id=x&exit=redirect&redirect="+
		url.QueryEscape("http://127.0.0.1:7777/x?token=true&error=true"), nil).Header.Get("Location"), "flow=")
	// This path works even if somebody is already signed in.
	resp := do(http.MethodPost, "/signin/other", url.Values{"flow": {flow}})
	if _, again, ok := strings.Cut(resp.Header.Get("Location"), "flow="); ok {
		flow = again
	}
	resp = do(http.MethodPost, "/signin/password",
		url.Values{"flow": {flow}, "email": {b.w.OwnerEmail}, "password": {b.w.OwnerPassword}})
	if to := resp.Header.Get("Location"); !strings.HasPrefix(to, "http://127.0.0.1:7777/x?") ||
		strings.Contains(to, "error=") {
		t.Fatalf("the sign-in led to %d %s", resp.StatusCode, to)
	}
}
