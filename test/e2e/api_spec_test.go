package e2e_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A visit is one request in a walk through the API. The target and the body may refer to resources that earlier
// visits created: {folder} is the UID in the answer to the visit with the name folder.
type visit struct{ name, verb, target, body string }

// walk contains every documented endpoint, parameter and error. Each visit comes after the visits that create its
// resources.
var walk = []visit{
	{"create a group", "POST", "/iam/v2beta1/groups/{org}", `{"name":"staging","description":"Before production"}`},
	{"create another", "POST", "/iam/v2beta1/groups/{org}", `{"name":"production"}`},
	{"create one below", "POST", "/iam/v2beta1/groups/{create a group}", `{"name":"web"}`},
	{"create a group without a name", "POST", "/iam/v2beta1/groups/{org}", `{}`},
	{"create a group of an empty body", "POST", "/iam/v2beta1/groups/{org}", ``},
	{"create a group of a bad name", "POST", "/iam/v2beta1/groups/{org}", `{"name":"Not Lower Case"}`},
	{"get a group", "GET", "/iam/v2beta1/groups/{create a group}", ``},
	{"get no group", "GET", "/iam/v2beta1/groups/{org}/0123456789abcdef", ``},
	{"get a group of others", "GET", "/iam/v2beta1/groups/0123456789012345678901234567890123456789", ``},
	{"list groups", "GET", "/iam/v2beta1/groups?order_by=name", ``},
	{"list groups backwards", "GET", "/iam/v2beta1/groups?order_by=name%20desc", ``},
	{"list groups by time", "GET", "/iam/v2beta1/groups?order_by=created_at%20desc", ``},
	{"list a page of groups", "GET", "/iam/v2beta1/groups?page_size=2&order_by=name", ``},
	{"list groups after some", "GET", "/iam/v2beta1/groups?skip=3&order_by=name", ``},
	{"list groups of a name", "GET", "/iam/v2beta1/groups?name=staging", ``},
	{"list groups under another", "GET", "/iam/v2beta1/groups?uidp.descendants_of={org}&order_by=name", ``},
	{"list groups directly under another", "GET", "/iam/v2beta1/groups?uidp.children_of={org}&order_by=name", ``},
	{"change the fields of the body", "PATCH", "/iam/v2beta1/groups/{create a group}", `{"description":"changed"}`},
	{
		"change the fields of the mask", "PATCH", "/iam/v2beta1/groups/{create a group}?updateMask=description",
		`{"name":"ignored","description":"changed again"}`,
	},
	{"create an identity", "POST", "/iam/v2beta1/identities/{create a group}",
		`{"name":"pipeline","description":"Builds","claimMatch":{"issuer":"https://ci.example","subject":"repo:org/app"}}`},
	{"list roles", "GET", "/iam/v2beta1/roles?name=advisories.creator", ``},
	{"list a page of roles", "GET", "/iam/v2beta1/roles?page_size=1&order_by=name&skip=4", ``},
	{
		"bind a role", "POST", "/iam/v2beta1/roleBindings/{create a group}",
		`{"identityUid":"{create an identity}","roleUid":"{viewer}"}`,
	},
	{"delete a group that has children", "DELETE", "/iam/v2beta1/groups/{create a group}", ``},
	{"delete the binding", "DELETE", "/iam/v2beta1/roleBindings/{bind a role}", ``},
	{"delete the identity", "DELETE", "/iam/v2beta1/identities/{create an identity}", ``},
	{"delete the group below", "DELETE", "/iam/v2beta1/groups/{create one below}", ``},
	{"delete the group", "DELETE", "/iam/v2beta1/groups/{create a group}", ``},
}

// TestApiSpec makes the walk, and compares the transcript with the golden file.
func TestApiSpec(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) { checkGolden(t, "spec.txt", w.walk(t, walk)) })
}

// checkGolden compares a text with a golden file in testdata. With -update it writes the file instead.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("the text differs from %s (-want +got); -update rewrites the file:\n%s", golden, diff)
	}
}

// walk makes the visits and returns a transcript. names contains further placeholders, each followed by its value.
func (w *world) walk(t *testing.T, visits []visit, names ...string) string {
	t.Helper()
	names = append(names, "{org}", string(w.Organization), "{viewer}", string(resource.ManagedRoleUID("viewer")))
	var b strings.Builder
	for _, v := range visits {
		fill := strings.NewReplacer(names...)
		r := w.send(t, w.Token, v.verb, fill.Replace(v.target), fill.Replace(v.body))
		fmt.Fprintf(&b, "# %s\n%s %s\n", v.name, v.verb, fill.Replace(v.target))
		if v.body != "" {
			fmt.Fprintln(&b, fill.Replace(v.body))
		}
		fmt.Fprintf(&b, "%d\n", r.status)
		if r.body == "" {
			b.WriteString("\n")
			continue
		}
		var made struct{ UID, ID string } // in version 1 the field is called id
		if err := json.Unmarshal([]byte(r.body), &made); err != nil {
			t.Fatalf("%s: %v\n%s", v.name, err, r.body)
		}
		names = append(names, "{"+v.name+"}", made.UID+made.ID)
		var text bytes.Buffer
		if err := json.Indent(&text, []byte(r.body), "", "  "); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n\n", &text)
	}
	return normalize(b.String())
}
