package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// uidsBelow matches the UIDs of resources in a group, also in the path of a request.
func uidsBelow(group string) *regexp.Regexp {
	return regexp.MustCompile(regexp.QuoteMeta(group) + `(?:(?:/|%2F)[0-9a-f]{16})+`)
}

// answersDiffer are operations whose answers for a resource that the caller may not see and for a missing one differ,
// each with the reason.
var answersDiffer = map[string]string{
	"AccessRequestsService_CreateAccessRequest": "everybody with a role in the organization may request this role",
	"SecurityTokenService_Exchange":             "the answer is a new token, for which no resource is read",
	"SecurityTokenService_Exchange_1":           "the same",
}

// hidesUIDs calls every operation with UIDs of resources that the caller may not see, in the path, the query and the
// body. The answer must be the same as for a UID that does not exist. The callers are the owner of another organization
// and a workload that owns another folder of the same organization.
func (w *world) hidesUIDs(t *testing.T, x things, doc document, examples map[string][]example) {
	t.Helper()
	below, calls := uidsBelow(x.org), 0
	callers := map[string]string{}
	for who, place := range map[string]string{
		"the owner of another organization": w.child(t, "", "elsewhere"),
		"the owner of another folder":       w.child(t, x.org, "aside"),
	} {
		robot := w.robot(t, place, "robot")
		w.bind(t, place, robot, ownerRole)
		callers[who] = w.mint(t, resource.UID(robot), token.Claims{})
	}
	for _, id := range inOrder(examples) {
		path, verb, op, ok := doc.find(id)
		if !ok || strings.HasSuffix(path, ":watch") || answersDiffer[id] != "" {
			continue
		}
		for _, e := range examples[id] {
			if e.fails || e.as != "" {
				continue
			}
			target := e.target(t, path, op, x)
			for _, uid := range below.FindAllString(target+" "+e.body, -1) {
				missing := uid[:len(uid)-16] + "0123456789abcdef"
				for who, bearer := range callers {
					answer := func(named string) string {
						r := w.send(t, bearer, strings.ToUpper(verb), strings.ReplaceAll(target, uid, named),
							strings.ReplaceAll(e.body, uid, named))
						return fmt.Sprint(r.status, lasting(strings.ReplaceAll(r.body, plain(named), "UID")))
					}
					calls++
					if answer(uid) != answer(missing) { // a background job may have changed the answer between the calls
						what := fmt.Sprintf("%s does not learn from %s %s %s that %s exists", who, id, target, e.body, uid)
						procUntil(t, what, func() bool { return answer(uid) == answer(missing) })
					}
				}
			}
		}
	}
	if calls < 300 {
		t.Errorf("only %d pairs of calls", calls)
	}
}

// plain returns a UID as responses contain it.
func plain(uid string) string { return strings.ReplaceAll(uid, "%2F", "/") }

// fleeting matches the parts of a response that differ between two equal requests.
var fleeting = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|"requestId":"[^"]*"|request [A-Za-z0-9-]+`)

// lasting returns a response without times and request IDs.
func lasting(body string) string { return fleeting.ReplaceAllString(body, "") }

// A narrowing is the narrowing of a token: capabilities and a group.
type narrowing struct {
	capabilities []string
	group        string
}

// narrowings are the narrowings whose tokens are compared with roles.
func narrowings(t *testing.T, w *world, x things) map[string]narrowing {
	t.Helper()
	found := must[*iampb.ListGroupsResponse](t, w.overGRPC, w.Token, &iampb.ListGroupsRequest{Name: "shelf"})
	shelf := found.GetGroups()[0].GetUid()
	return map[string]narrowing{
		"to lists of people and groups": {[]string{"identity.list", "groups.list"}, x.org},
		"to lists of access in a folder": {
			[]string{"role_bindings.list", "roles.list", "groups.list", "identity.list"}, x.folder,
		},
		"to reports in a folder": {
			[]string{"repo.list", "vuln_report.list", "sboms.list", "advisories.list", "tag.list", "manifest.metadata.list",
				"registry.deployments.list"}, shelf,
		},
	}
}

// leaves adds all texts and numbers in a JSON value to found, except what differs between equal requests.
func leaves(v any, found map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if !slices.Contains([]string{"nextPageToken", "position", "fingerprint"}, key) {
				leaves(value, found)
			}
		}
	case []any:
		for _, value := range v {
			leaves(value, found)
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
			found[v] = true
		}
	case float64:
		found[fmt.Sprint(v)] = true
	}
}

// aboutCaller are operations whose answers are about the caller's own token or roles, or are encrypted anew each time.
var aboutCaller = []string{
	"Auth_Validate", "SecurityTokenService_Exchange", "SecurityTokenService_Exchange_1",
	"OrganizationService_GetOrganizationState",
}

// narrows calls every operation with narrowed tokens of an owner. A call must not succeed or reveal anything unless the
// same call does so for a workload whose role has the capabilities of the narrowing in its group.
func (w *world) narrows(t *testing.T, x things, doc document, examples map[string][]example) {
	t.Helper()
	for name, n := range narrowings(t, w, x) {
		robot := w.robot(t, x.org, "robot"+rand8())
		w.bind(t, n.group, robot, w.role(t, x.org, "role"+rand8(), capabilities(n.capabilities...)...))
		by := w.mint(t, resource.UID(robot), token.Claims{})
		only := resource.CapabilitySet(n.capabilities...)
		narrowed := w.mint(t, w.Owner, token.Claims{Caps: &only, Scopes: []resource.UID{resource.UID(n.group)}})
		equal := 0
		for _, id := range inOrder(examples) {
			path, verb, op, ok := doc.find(id)
			if !ok || strings.HasSuffix(path, ":watch") || slices.Contains(aboutCaller, id) {
				continue
			}
			for _, e := range examples[id] {
				if e.as != "" || e.fails {
					continue
				}
				target := e.target(t, path, op, x)
				status, seen := w.learns(t, by, verb, target, e.body)
				if status == http.StatusOK && verb != "get" {
					continue // the workload has done it
				}
				got, learned := w.learns(t, narrowed, verb, target, e.body)
				if got != http.StatusOK {
					continue
				}
				equal++
				if status != http.StatusOK || !covers(seen, learned) { // or a background job has changed the answer
					what := fmt.Sprintf("a token narrowed %s learns nothing more from %s %s", name, id, target)
					procUntil(t, what, func() bool {
						status, seen = w.learns(t, by, verb, target, e.body)
						got, learned = w.learns(t, narrowed, verb, target, e.body)
						return got != http.StatusOK || status == http.StatusOK && covers(seen, learned)
					})
				}
			}
		}
		if equal < 20 {
			t.Errorf("only %d calls succeed with a token narrowed %s", equal, name)
		}
	}
}

// covers reports whether all texts are in seen.
func covers(seen, texts map[string]bool) bool {
	for text := range texts {
		if !seen[text] {
			return false
		}
	}
	return true
}

// learns makes a call, and returns the status and the texts of the answer.
func (w *world) learns(t *testing.T, bearer, verb, target, body string) (int, map[string]bool) {
	t.Helper()
	r := w.send(t, bearer, strings.ToUpper(verb), target, body)
	var v any
	_ = json.Unmarshal([]byte(r.body), &v) // some answers are not JSON
	found := map[string]bool{}
	leaves(v, found)
	return r.status, found
}
