package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// teamSize is the number of members of the team in TestTeamCrash.
const teamSize = 20_000

// teamOf returns the resource of a group with the given members: all with the same first letter.
func teamOf(letter string) map[string]any {
	members := make([]map[string]string, teamSize)
	for i := range members {
		members[i] = map[string]string{"value": fmt.Sprintf("%s-%d", letter, i)}
	}
	return map[string]any{"displayName": "Crew", "members": members}
}

// TestTeamCrash kills the server while a directory replaces all 20,000 members of a group. Afterwards the group has
// either its previous members or the new ones, and the number of its members is right.
func TestTeamCrash(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		env := []string{"HOLDFAST_DATA_DIR=" + t.TempDir(), "HOLDFAST_DATABASE=" + url}
		p := procStart(t, env...)
		base, secret := procDirectory(t, p)
		directory := procDial(p.address, secret)
		team := procScim(t, directory, http.MethodPost, base+"/Groups", teamOf("a"))
		path := fmt.Sprintf("%s/Groups/%s", base, team["id"])
		start := time.Now()
		procScim(t, directory, http.MethodPut, path, teamOf("b"))
		took := time.Since(start) // how long a request takes that is not interrupted
		before := "b"
		for round := range 3 {
			after := string(rune('c' + round))
			pause := time.Duration(rand.Int64N(int64(took)))
			killed := make(chan struct{})
			time.AfterFunc(pause, func() { defer close(killed); _ = p.cmd.Process.Kill() })
			answer, err := directory.call(t.Context(), http.MethodPut, path, teamOf(after))
			<-killed
			<-p.ended
			p.killed = true
			p = procStart(t, env...)
			directory = procDial(p.address, secret)
			found := procScim(t, directory, http.MethodGet, path, nil)
			letters := map[string]int{}
			members, _ := found["members"].([]any)
			for _, m := range members {
				value, _ := m.(map[string]any)["value"].(string)
				letter, _, _ := strings.Cut(value, "-")
				letters[letter]++
			}
			acknowledged := err == nil && answer.status == http.StatusOK
			t.Logf("killed after %s of %s; acknowledged %t; %v", pause, took, acknowledged, letters)
			if letters[after] == teamSize && len(letters) == 1 {
				before = after
			}
			if letters[before] != teamSize || len(letters) != 1 || acknowledged && before != after {
				t.Fatalf("round %d: the team has the members %v", round, letters)
			}
		}
		p.stop()
		s := storetest.Open(t, url)
		procNoDrift(t, s)
		var stored, rows int
		if err := s.Row(t.Context(), `SELECT members, (SELECT count(*) FROM team_members) FROM teams`, nil, &stored,
			&rows); err != nil || stored != teamSize || rows != teamSize {
			t.Errorf("the team has %d members and %d rows: %v", stored, rows, err)
		}
	})
}

// procDirectory creates an identity provider whose directory is enabled. It returns the path of the directory and its
// token.
func procDirectory(t *testing.T, p *proc) (base, secret string) {
	t.Helper()
	org := string(p.dev.Organization)
	idp := procMust[map[string]any](t, p.owner(), http.MethodPost, "/iam/v2beta1/identityProviders/"+org, map[string]any{
		"name": "idp", "defaultRole": resource.ManagedRoleUID("viewer"),
		"oidc": map[string]any{"issuer": "https://idp.test", "clientId": "c", "clientSecret": "s"},
	})
	uid, _ := idp["uid"].(string)
	at := "/iam/v2beta1/identityProviders/" + uid
	procMust[map[string]any](t, p.owner(), http.MethodPost, "/iam/v2beta1/roleBindings/"+org, map[string]any{
		"identityUid": resource.UserUID("https://people.test", "other owner"), "roleUid": resource.OwnerRole,
	})
	token := procMust[map[string]any](t, p.owner(), http.MethodPost, at+":generateScimToken", map[string]any{})
	state := procMust[map[string]any](t, p.owner(), http.MethodGet, "/access/v1/directories/"+uid, nil)
	procMust[map[string]any](t, p.owner(), http.MethodPost, at+":setScimEnabled", map[string]any{
		"enabled": true, "etag": state["etag"],
	})
	secret, _ = token["token"].(string)
	return "/scim/v2/" + segmentOf(uid), secret
}

// procScim sends a request of a directory, which must succeed, and returns the resource in the answer.
func procScim(t *testing.T, directory *procClient, verb, path string, body any) (got map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), procPatience)
	defer cancel()
	a, err := directory.callWith(ctx, verb, path, "application/scim+json", body)
	if err != nil {
		t.Fatal(err)
	}
	if a.status >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %d %.300s", verb, path, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &got); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return got
}
