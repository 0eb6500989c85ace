package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWebhookBodies creates, changes and deletes resources. The event for each change must contain the API's response
// or, for a deletion, the request. The audit log must have an entry for each change.
func TestWebhookBodies(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		org := string(w.Organization)
		r := newReceiver(t, w, org)
		w.post(t, "/events/v2beta1/subscriptions/"+org, `{"sink":"`+r.URL+`"}`)
		told := func(kind, subject string) any {
			t.Helper()
			e := r.await(t, "dev.holdfast.api."+kind+".v1", subject)
			var got struct{ Body any }
			if err := e.DataAs(&got); err != nil {
				t.Fatal(err)
			}
			return got.Body
		}
		answer := func(verb, target, body string) (got map[string]any) {
			t.Helper()
			a := w.send(t, w.Token, verb, target, body)
			if a.status != http.StatusOK {
				t.Fatalf("%s %s: %d %s", verb, target, a.status, a.body)
			}
			if a.body != "" {
				if err := json.Unmarshal([]byte(a.body), &got); err != nil {
					t.Fatal(err)
				}
			}
			return got
		}
		for _, thing := range []struct{ kind, path, create, update string }{
			{
				"vulnerabilities.advisory", "/advisories/v1/advisories/",
				`{"artifactName":"openssl","artifactType":"apk","aliases":["CVE-2026-1"],` +
					`"events":[{"fixed":{"fixedVersion":"3.3.2-r1"}}],` +
					`"affected":[{"ecosystem":"Go","name":"x","versions":["1.0.0"]}]}`,
				`{"details":"more"}`,
			},
			{
				"vulnerabilities.feed", "/advisories/v1/feeds/",
				`{"name":"f","address":"https://feeds.example/all.zip","paused":true}`, `{"interval":"7200s"}`,
			},
			{"signin.account", "/signin/v1/accounts/", `{"email":"ann@example.test","name":"Ann"}`, ""},
		} {
			made := answer("POST", thing.path+org, thing.create)
			if account, ok := made["account"].(map[string]any); ok {
				made = account // the response also contains a link, which is secret
			}
			uid := made["uid"].(string)
			if diff := cmp.Diff(any(made), told(thing.kind+".created", uid)); diff != "" {
				t.Errorf("%s created: %s", thing.kind, diff)
			}
			if thing.update != "" {
				changed := answer("PATCH", thing.path+uid, thing.update)
				if diff := cmp.Diff(any(changed), told(thing.kind+".updated", uid)); diff != "" {
					t.Errorf("%s updated: %s", thing.kind, diff)
				}
			}
			answer("DELETE", thing.path+uid, "")
			if diff := cmp.Diff(any(map[string]any{"uid": uid}), told(thing.kind+".deleted", uid)); diff != "" {
				t.Errorf("%s deleted: %s", thing.kind, diff)
			}
		}
		rules := answer("PATCH", "/signin/v1/rules/"+org, `{"localAccounts":true}`)
		if diff := cmp.Diff(any(rules), told("signin.rules.updated", org)); diff != "" {
			t.Errorf("rules: %s", diff)
		}
		w.endByReplay(t)
		ended := told("signin.session.ended", string(w.Owner)).(map[string]any)
		if session := ended["session"].(map[string]any); ended["reason"] != "END_REASON_REPLAY" ||
			session["identityUid"] != string(w.Owner) || session["id"] == "" {
			t.Errorf("session: %v", ended)
		}
		if e := w.audited(t, "signin.session"); len(e) != 1 || e[0].Actor.RemoteAddress != "127.0.0.1" ||
			e[0].Actor.UID != "" {
			t.Errorf("the entry does not show the caller and address of the second use: %+v", e)
		}
		w.wantAudited(t, "vulnerabilities.advisory", "vulnerabilities.feed", "signin.account", "signin.rules",
			"signin.session")
	})
}

// endByReplay uses the owner's refresh token twice, which ends the session.
func (w *world) endByReplay(t *testing.T) {
	t.Helper()
	for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		target := "/sts/exchange_refresh_token?aud=" + url.QueryEscape(w.BaseURL)
		if got := w.send(t, w.RefreshToken, http.MethodPost, target, ""); got.status != want {
			t.Fatalf("a refresh token: HTTP status %d, want %d: %s", got.status, want, got.body)
		}
	}
}

// An auditEntry is an entry in the audit log.
type auditEntry struct {
	Type          string
	Actor         struct{ UID, RemoteAddress string }
	Before, After map[string]any
}

// audited returns the audit entries of a type.
func (w *world) audited(t *testing.T, kind string) []auditEntry {
	t.Helper()
	a := w.send(t, w.Token, "GET", "/audit/v1/entries?type="+kind, "")
	var got struct{ Entries []auditEntry }
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	return got.Entries
}

// wantAudited checks that the audit log has entries of these types, and that they have content.
func (w *world) wantAudited(t *testing.T, kinds ...string) {
	t.Helper()
	for _, kind := range kinds {
		entries := w.audited(t, kind)
		if len(entries) == 0 {
			t.Errorf("no entries of %s", kind)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Type, "dev.holdfast.api."+kind) || len(e.Before)+len(e.After) == 0 {
				t.Errorf("%s: %+v", kind, e)
			}
		}
	}
}
